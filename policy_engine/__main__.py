"""The command `sluicegate`: nothing is imported before an interrupt is understood."""

from __future__ import annotations


def main() -> None:
    """Entry point."""
    try:
        from policy_engine.cli import main as run
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    run()


if __name__ == "__main__":
    main()
