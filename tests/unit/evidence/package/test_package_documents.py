"""What the documents promise by number: the steps of `verify`, and the exit codes."""

from __future__ import annotations

import re
from pathlib import Path

from evidence import telling
from evidence.package import rebuild, verify
from evidence.package.resources import resource

DOCUMENT = (Path(__file__).parents[4] / "docs" / "package.md").read_text()
README = resource("README.md").decode()


def steps(text: str) -> list[int]:
    return [int(n) for n in re.findall(r"^ ?(\d+)\. ", text, re.MULTILINE)]


def test_the_steps_have_the_same_numbers_in_readme_and_code() -> None:
    section = README.partition("## What `verify` does")[2].partition("\n## ")[0]
    assert list(range(1, 18)) == steps(verify.__doc__ or "") == steps(section)


def test_every_step_is_labelled_in_the_code() -> None:
    code = "".join(
        Path(str(m.__file__)).read_text().partition("from __future__")[2] for m in (verify, rebuild)
    )
    labels = re.findall(r'(?:# |""")((?:\d+(?:, |\. ))+|\d+(?:, \d+)*$)', code, re.MULTILINE)
    told = {int(n) for label in labels for n in re.findall(r"\d+", label)}
    told |= {int(n) for n in re.findall(r"\. (\d+)\. [A-Z]", code)}
    assert set(range(2, 18)) <= told


def test_the_exit_codes_are_the_same_everywhere() -> None:
    rows = dict(re.findall(r"^\| (\d) \| ([^|:;]*)", DOCUMENT, re.MULTILINE))
    assert ["0", "1", "2", "3", "4", "5"] == sorted(rows)
    assert (verify.VERIFIED, verify.NO_SIGNER) == (rows["0"].strip(), rows["3"].strip())
    assert "signed by the trusted key, scope not established" in rows["4"]
    for code in range(5):
        told = rows[str(code)].split(",")[0].strip()
        assert f"{code} {told}" in " ".join(README.split())
        assert told in " ".join((telling.__doc__ or "").split())
    assert re.search(r"^\| 5 \| \| `import`: nothing in a file can be read \|$", DOCUMENT, re.MULTILINE)
    assert (0, 1, 2, 3, 4, 5) == (
        telling.OK, telling.NO, telling.USAGE, telling.NO_SIGNER, telling.NO_SCOPE, telling.NO_ROW,
    )  # fmt: skip
