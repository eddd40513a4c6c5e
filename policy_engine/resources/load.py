"""Reads a directory of declared state and reports everything that is wrong with it, at once.

    resources = load(Path("estate"))          # raises ResourceErrors
    resources = parse({"site.yaml": b"..."})  # the same from bytes: for tests and for other sources

`*.yaml` and `*.yml` are read, folders included; hidden files and folders and other suffixes are not. A file
holds one document: one object, or one `v1` `List` of objects. A symbolic link may not lead out of the
directory. Sizes are checked before anything is parsed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from policy_engine.errors import Problem, ResourceErrors
from policy_engine.limits import LIMITS
from policy_engine.resources.checks import check
from policy_engine.resources.model import Cluster
from policy_engine.resources.objects import Located, Source, read_objects
from policy_engine.resources.resource_set import ResourceSet
from policy_engine.resources.yaml_tree import read_document

_SUFFIXES = frozenset({".yaml", ".yml"})
ReadFile = Callable[[str], bytes | None]


def load(directory: Path | str) -> ResourceSet:
    """The declared state in a directory.

    Raises:
        ResourceErrors: with every problem found in any file.
    """
    root = Path(directory)
    problems: list[Problem] = []
    files: dict[str, bytes] = {}
    total = 0
    for name in _walk(root, problems):
        data = _read(root, name, problems)
        if data is None:
            continue
        total += len(data)
        if total > LIMITS.resource_total_bytes or len(files) >= LIMITS.resource_files:
            problems.append(Problem(name, 0, "", "the directory is too large", "split the estate"))
            break
        files[name] = data
    if not files and not problems:
        problems.append(Problem(str(directory), 0, "", "no *.yaml or *.yml file is here"))
    return _build(files, problems, lambda name: _read(root, name, []))


def parse(files: Mapping[str, bytes]) -> ResourceSet:
    """The declared state in named files that are already in memory.

    Raises:
        ResourceErrors: with every problem found in any file.
    """
    yaml = {name: data for name, data in files.items() if Path(name).suffix.lower() in _SUFFIXES}
    return _build(yaml, [], files.get)


def _build(files: Mapping[str, bytes], problems: list[Problem], read: ReadFile) -> ResourceSet:
    found: list[Located] = []
    sources: list[Source] = []
    for name in sorted(files):
        doc, wrong = read_document(name, files[name])
        problems += wrong
        if doc is None:
            continue
        for source, located, errors in read_objects(name, doc):
            sources.append(source)
            problems += errors
            if located is not None:
                found.append(located)
    found = [_with_ca(item, read, problems) for item in found]
    problems += check(found, sources)
    if problems:
        raise ResourceErrors(problems[: LIMITS.problems_reported])
    return ResourceSet(item.resource for item in found)


def _walk(root: Path, problems: list[Problem]) -> Iterator[str]:
    """Names of the YAML files, relative to the root, in order; links to folders are refused."""
    for folder, folders, names in os.walk(root, followlinks=False):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        for sub in folders:
            path = Path(folder, sub)
            if path.is_symlink():
                name = str(path.relative_to(root))
                problems.append(
                    Problem(name, 0, "", "a link to a folder is not followed", "move the files here")
                )
        for name in sorted(names):
            if not name.startswith(".") and Path(name).suffix.lower() in _SUFFIXES:
                yield str(Path(folder, name).relative_to(root))


def _read(root: Path, name: str, problems: list[Problem]) -> bytes | None:
    """Bytes of a regular file inside the root, at most the limit; a problem otherwise."""
    limit = LIMITS.resource_file_bytes
    try:
        path = (root / name).resolve(strict=True)
        if not path.is_relative_to(root.resolve(strict=True)):
            problems.append(Problem(name, 0, "", "the link leads out of the directory", "copy the file in"))
            return None
        # O_NONBLOCK: opening a pipe must not wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                problems.append(Problem(name, 0, "", "this is not a regular file", "remove it"))
                return None
            if status.st_size > limit:
                fix = "split it: one object per file"
                problems.append(Problem(name, 0, "", f"the file is larger than {limit} bytes", fix))
                return None
            return file.read(limit + 1)
    except OSError as error:
        problems.append(Problem(name, 0, "", f"the file cannot be read: {error.strerror}"))
        return None


def _with_ca(item: Located, read: ReadFile, problems: list[Problem]) -> Located:
    """A Cluster whose `clientCAFile` is read in, so that the digest covers what it says."""
    cluster = item.resource
    if not isinstance(cluster, Cluster) or cluster.identity.client_ca_file is None:
        return item
    path = ("spec", "identity", "clientCAFile")
    data = read(cluster.identity.client_ca_file)
    if data is None:
        fix = "give a path inside this directory"
        problems.append(item.source.problem(path, "this file cannot be read here", fix))
        return item
    if cluster.identity.client_ca is not None:
        problems.append(item.source.problem(path, "clientCA is given too", "keep one of the two"))
        return item
    text = data.decode("ascii", "replace")
    identity = cluster.identity.model_copy(update={"client_ca": text})
    return Located(cluster.model_copy(update={"identity": identity}), item.source)
