"""Enrolment: a wrapped, one-use secret_id becomes a certificate for a key that never leaves the agent.

Unwrap (a second unwrap is refused by OpenBao, so a stolen token is noticed), log in by AppRole, have the CSR
signed, store the pair. The AppRole token can sign once and ends by itself; afterwards only the certificate
counts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from keymgmt.agents.client import Connection
from keymgmt.agents.config import BaoPaths, Server
from keymgmt.agents.identity import Candidate, Identity
from keymgmt.agents.vault import bao_call
from keymgmt.errors import CustodyUnavailable, KeymgmtError
from keymgmt.processes import keep_out_of_core_files


def enrol(
    *, server: Server, paths: BaoPaths, name: str, role_id: str, wrapping_token: str, folder: Path
) -> Identity:
    """Enrol one agent and return its identity.

    Args:
        server: OpenBao.
        paths: mounts and roles.
        name: the agent's name, which becomes the certificate's CN.
        role_id: of the enrolment AppRole; public.
        wrapping_token: answers once with the secret_id.
        folder: the agent's own folder.

    Raises:
        CustodyRefused: the token was used or has ended, or the name is not this agent's.
        CustodyUnavailable: OpenBao is sealed or away.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    candidate = Candidate(name)
    connection = Connection(server, lambda: None, timeout_s=10.0)
    try:
        wrapped = bao_call(connection, "POST", "sys/wrapping/unwrap", {}, wrapping_token)
        secret_id = wrapped["data"]["secret_id"]
        login = {"role_id": role_id, "secret_id": secret_id}
        token = bao_call(connection, "POST", f"auth/{paths.approle_mount}/login", login, None)["auth"][
            "client_token"
        ]
        signed = bao_call(
            connection, "POST", f"{paths.pki_mount}/sign/{paths.pki_role}", {"csr": candidate.csr}, token
        )
        return candidate.adopt(folder, str(signed["data"]["certificate"]))
    except (KeyError, TypeError):
        raise CustodyUnavailable(
            "OpenBao's answer misses a field", fix="check the version of OpenBao"
        ) from None
    finally:
        connection.close()


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point; the wrapping token comes on standard input, never in argv. Status 1: not enrolled."""
    parser = argparse.ArgumentParser(
        description="Enrol an agent: the wrapping token is read from standard input"
    )
    for option in ("--host", "--port", "--ca", "--name", "--role-id", "--folder", "--keys-mount"):
        parser.add_argument(option, required=True, type=int if option == "--port" else str)
    args = parser.parse_args(argv)
    keep_out_of_core_files()
    try:
        enrol(
            server=Server(args.host, args.port, args.ca),
            paths=BaoPaths(args.keys_mount),
            name=args.name,
            role_id=args.role_id,
            wrapping_token=sys.stdin.readline().strip(),
            folder=Path(args.folder),
        )
    except KeymgmtError as error:
        raise SystemExit(
            f"{args.name} is not enrolled: {error}" + (f" ({error.fix})" if error.fix else "")
        ) from None
    except OSError as error:
        raise SystemExit(f"{args.name} is not enrolled: {error.filename}: {error.strerror}") from None


if __name__ == "__main__":
    main()
