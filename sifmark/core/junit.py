"""Checks as a JUnit report, which CI systems show."""

from collections import Counter
from collections.abc import Mapping, Sequence
from xml.etree import ElementTree

from sifmark.core.checks import Check, Status
from sifmark.core.console import printable

_ELEMENTS = {Status.FAILED: "failure", Status.SKIPPED: "skipped"}  # of JUnit, by the outcome of a check


def junit_xml(suites: Mapping[str, Sequence[Check]]) -> str:
    """Return checks as a JUnit report, a test suite for each name.

    The format is what Jenkins, GitLab and Azure read: https://github.com/testmoapp/junitxml.
    """
    root = ElementTree.Element("testsuites", name="sifmark")
    for name, checks in suites.items():
        outcomes = Counter(check.status for check in checks)
        counts = {"tests": len(checks), "failures": outcomes[Status.FAILED], "skipped": outcomes[Status.SKIPPED]}
        attributes = {"name": printable(name), **{key: str(count) for key, count in counts.items()}}
        suite = ElementTree.SubElement(root, "testsuite", attributes)
        for check in checks:
            case = ElementTree.SubElement(suite, "testcase", classname=printable(name), name=check.name)
            text = "\n".join(printable(line) for line in [*check.detail.splitlines(), *check.remedy.splitlines()])
            if element := _ELEMENTS.get(check.status):
                ElementTree.SubElement(case, element, message=text.partition("\n")[0]).text = text
            else:
                ElementTree.SubElement(case, "system-out").text = text
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"
