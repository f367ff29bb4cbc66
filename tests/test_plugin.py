"""The pytest plugin and the `Conformance` class, in pytest runs of their own."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from kvconform.harness import registry

CLAUSES = [clause.id for clause in registry.clauses()]
RIGHT, WRONG = "builtin:gpt/concat", "builtin:gpt/no_mask"


def asked(*targets: str) -> list[str]:
    return [word for target in targets for word in ("--kvconform-target", target)]


def collected(result: pytest.RunResult) -> list[str]:
    """Ids; those of the plugin's items begin with ::, for they stand in no file."""
    return [line.removeprefix("::") for line in result.outlines if "::" in line]


def test_an_item_for_each_target_and_clause(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess(*asked(RIGHT, WRONG), "--collect-only", "-q")
    assert result.ret == 0
    assert collected(result) == [f"{target}::{clause}" for target in (RIGHT, WRONG) for clause in CLAUSES]


def test_items_are_chosen_by_clause_by_word_and_by_marker(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_mine(): pass")
    words = (
        "--kvconform-clause",
        "branch.*",
        "-k",
        "fork or crop",
        "-m",
        "kvconform",
        "--collect-only",
        "-q",
        "--strict-markers",
    )
    result = pytester.runpytest_subprocess(*asked(RIGHT), *words)
    assert result.ret == 0
    assert collected(result) == [f"{RIGHT}::branch.fork", f"{RIGHT}::branch.crop"]


def test_the_line_of_what_was_collected_adds_up(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_mine(): pass")
    result = pytester.runpytest_subprocess(*asked(RIGHT), "-k", "prefill or mine", "--collect-only")
    result.stdout.fnmatch_lines([f"collected {len(CLAUSES) + 1} items / {len(CLAUSES) - 2} deselected / 3 selected"])


def test_a_run_with_failures(pytester: pytest.Pytester) -> None:
    """Passed, failed and unsupported clauses; the failure block without a traceback; ids in the JUnit file."""
    pytester.makepyfile("def test_mine(): pass")
    clauses = ("prefill.identity", "prefill.chunked", "window.eviction")
    result = pytester.runpytest_subprocess(
        *asked(RIGHT, WRONG),
        *("-k", "prefill or window.eviction or mine", "--junitxml", "junit.xml", "-rfs"),
        *("--kvconform-max-examples", "1", "--kvconform-seed", "5"),
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=3, failed=2, skipped=2, deselected=2 * (len(CLAUSES) - len(clauses)))
    result.stdout.fnmatch_lines(
        [
            f"kvconform: {RIGHT}, {WRONG} (seed 5, profile quick)",
            f"*{WRONG} prefill.identity*",
            "FAILED prefill.identity (float*",
            "  promised:  The first call on an empty cache gives the reference's logits.",
            "  where:     op 0 (append), token 0, size *",
            "  program:   append a 1 2",
            "  Reproduce with:",
            f"    kvconform replay {WRONG} 'append a 1 2' --clause prefill.identity --dtype *",
            f"FAILED *{WRONG}::prefill.identity*",
            "SKIPPED *unsupported: *",
        ]
    )
    assert "Traceback" not in result.stdout.str()
    assert ".py:" not in "".join(line for line in result.outlines if "no_mask" in line)

    cases = ElementTree.parse(pytester.path / "junit.xml").findall(".//testcase")
    outcomes = {f"{case.get('classname')}::{case.get('name')}": sorted(child.tag for child in case) for case in cases}
    for target, outcome in ((RIGHT, []), (WRONG, ["failure"])):
        for clause in clauses[:2]:
            assert [found for name, found in outcomes.items() if target in name and clause in name] == [outcome]
        assert [found for name, found in outcomes.items() if target in name and clauses[2] in name] == [["skipped"]]
    assert len(outcomes) == 7


def test_items_are_spread_over_processes(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess(
        *asked(RIGHT, WRONG), "-n", "2", "-k", "prefill or reference", "--kvconform-max-examples", "0"
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=10, failed=2)


USAGE = {
    "no scheme": (asked(RIGHT, "nonsense"), "'nonsense' is no target"),
    "no such way": (asked("builtin:gpt/concta"), "'concta'; did you mean concat"),
    "clause": ([*asked(RIGHT), "--kvconform-clause", "nothing.*"], "no clause matches 'nothing.*'"),
    "profile": ([*asked(RIGHT), "--kvconform-profile", "lazy"], "no profile 'lazy'"),
    "dtype": ([*asked(RIGHT), "--kvconform-dtype", "float8"], "'float8' is not known"),
    "examples": ([*asked(RIGHT), "--kvconform-max-examples", "-1"], "-1"),
}


@pytest.mark.parametrize("what", USAGE)
def test_a_wrong_option_is_a_usage_error_in_one_line(what: str, pytester: pytest.Pytester) -> None:
    words, said = USAGE[what]
    result = pytester.runpytest_subprocess(*words, "-q")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in result.errlines if line.strip()]
    assert line.startswith("ERROR: kvconform: ")
    assert said in line
    assert "Traceback" not in result.stdout.str()


def test_a_wrong_target_is_told_where_processes_share_the_work_too(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess(*asked("nonsense"), "-n", "2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    shown = result.stdout.str() + result.stderr.str()
    assert "'nonsense' is no target" in shown
    assert "INTERNALERROR" not in shown
    assert "Traceback" not in shown


def test_a_run_without_kvconform_tests_loads_no_torch(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_what_is_loaded(request):
            assert request.config.pluginmanager.hasplugin("kvconform")
            assert "kvconform.interface.pytest_plugin" in sys.modules
            loaded = {name for name in sys.modules if name.startswith("kvconform.")}
            assert loaded == {"kvconform.interface", "kvconform.interface.pytest_plugin"}
            assert not {"torch", "transformers", "safetensors"} & set(sys.modules)
        """
    )
    result = pytester.runpytest_subprocess()
    assert result.ret == 0
    result.assert_outcomes(passed=1)
    assert not any(line.startswith("kvconform:") for line in result.outlines)


MINE = """
import kvconform
from kvconform.harness import registry

wrong = registry.resolve("builtin:gpt/no_mask")


class TestRight(kvconform.Conformance):
    target = "builtin:gpt/concat"


class TestWrong(kvconform.Conformance):
    implementation = wrong.implementation
    reference = wrong.reference
    dtypes = ("float32",)
"""


def test_the_conformance_class_gives_a_test_for_each_clause(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_mine="""
        import kvconform

        class TestOne(kvconform.Conformance):
            target = "builtin:gpt/concat"

        class TestOther(kvconform.Conformance):
            target = "builtin:gpt/paged"
        """
    )
    result = pytester.runpytest_subprocess("--collect-only", "-q")
    assert result.ret == 0
    names = [f"test_mine.py::{case}::test_clause[{clause}]" for case in ("TestOne", "TestOther") for clause in CLAUSES]
    assert collected(result) == names


def test_the_conformance_class_passes_fails_and_skips(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_mine=MINE)
    result = pytester.runpytest_subprocess("-k", "prefill or window.eviction", "-rs")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=2, failed=2, skipped=2, deselected=2 * (len(CLAUSES) - 3))
    failures = re.findall(r"^FAILED (\S+) \(float32\)$", result.stdout.str(), re.MULTILINE)
    assert failures == ["prefill.identity", "prefill.chunked"]
    result.stdout.fnmatch_lines(["SKIPPED *unsupported: *"])


def test_a_conformance_class_that_lacks_something_says_what(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import kvconform

        class TestNothing(kvconform.Conformance):
            pass

        class TestUnfinished(kvconform.Conformance):
            implementation = kvconform.Implementation()
        """
    )
    result = pytester.runpytest_subprocess("-k", "prefill.identity")
    result.assert_outcomes(failed=2, deselected=2 * (len(CLAUSES) - 1))
    result.stdout.fnmatch_lines(["*Implementation does not define new_cache(self, rows=1): without it nothing can be asked*"])
    result.stdout.re_match_lines([r".*TestNothing needs a target.*"])


def test_the_smoke_stage_comes_first_in_pytest_too(pytester: pytest.Pytester) -> None:
    """A test of one clause says that the adapter is at fault, and does not blame the cache."""
    pytester.makepyfile(
        """
        import kvconform


        class TestMine(kvconform.Conformance):
            target = "builtin:gpt/returns_tuple"
        """
    )
    result = pytester.runpytest_subprocess("-k", "crop")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "branch.crop inconclusive: the adapter is at fault, not the cache: adapter.answers failed: append gave a tuple*",
        ]
    )
