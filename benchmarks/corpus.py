"""Run other people's tests rewritten and plain, and compare the outcome of each test.

    python benchmarks/corpus.py                          # the standard library's tests, networkx and sympy
    python benchmarks/corpus.py test_grammar sympy/sets  # some of them
    python benchmarks/corpus.py --part all-stdlib        # each file of the standard library's tests
    python benchmarks/corpus.py --out corpus.jsonl       # go on where the last run with this file stopped

Each file or folder runs in processes of its own: plain, rewritten with no library watched, and rewritten with every
callable watched. Where a test differs, the plain run is repeated, and a test whose two plain runs differ is unstable:
it is left out and counted. Tests that differ for a reason that no rewriting can avoid are in `EXPECTED`, with the
reason. Ends with 1 if another test differs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RUNNER = ROOT / "tests" / "corpus_runner.py"
MODES = ("unwatched", "every")

STDLIB = """
test__locale test_abc test_abstract_numbers test_aifc test_argparse test_array test_asyncgen test_ast test_augassign
test_base64 test_baseexception test_binascii test_binop test_bisect test_bool test_buffer test_bufio test_builtin
test_bytes test_bz2 test_calendar test_call test_capi test_class test_cmath test_cmd test_codeop test_codecs
test_collections test_colorsys test_compare test_compile test_complex test_configparser test_contains test_context
test_contextlib test_contextlib_async test_copy test_copyreg test_coroutines test_csv test_ctypes test_dataclasses
test_datetime test_decimal test_decorators test_defaultdict test_deque test_descr test_descrtut test_dict
test_dict_version test_dictcomps test_dictviews test_difflib test_doctest test_dynamic test_dynamicclassattribute
test_email test_enum test_enumerate test_eof test_except_star test_exception_group test_exception_hierarchy
test_exception_variations test_exceptions test_extcall test_file test_filter test_finalization test_float test_fnmatch
test_format test_fractions test_frame test_frozen test_fstring test_funcattrs test_functools test_future test_gc
test_generator_stop test_generators test_generic_class test_genericalias test_genericpath test_genexps test_getopt
test_gettext test_glob test_global test_grammar test_graphlib test_gzip test_hash test_hashlib test_heapq test_hmac
test_html test_htmlparser test_import test_importlib test_index test_inspect test_int test_int_literal test_io
test_ioctl test_ipaddress test_isinstance test_iter test_iterlen test_itertools test_json test_keyword
test_keywordonlyarg test_kqueue test_largefile test_lazy_import test_linecache test_list test_listcomps test_locale
test_logging test_long test_longexp test_lzma test_mailbox test_marshal test_math test_memoryio test_memoryview
test_metaclass test_mimetypes test_minidom test_module test_modulefinder test_monitoring test_named_expressions
test_numeric_tower test_opcodes test_operator test_optparse test_ordered_dict test_os test_parser test_patma
test_pathlib test_pep646_syntax test_peepholer test_pickle test_picklebuffer test_pkg test_pkgutil test_plistlib
test_posixpath
test_positional_only_arg test_pow test_pprint test_print test_profile test_property test_pstats test_pyclbr
test_pydoc test_queue test_quopri test_raise test_random test_range test_re test_regrtest test_reprlib test_richcmp
test_rlcompleter test_robotparser test_runpy test_sched test_scope test_script_helper test_secrets test_set
test_setcomps test_shelve test_shlex test_shutil test_signal test_slice test_sort test_sqlite3 test_stat
test_statistics test_str test_strftime test_string test_string_literals test_stringprep test_strptime test_strtod
test_struct test_structseq test_subclassinit test_sundry test_super test_support test_symtable test_syntax test_sys
test_sys_setprofile test_sys_settrace test_sysconfig test_syslog test_tarfile test_tempfile test_textwrap test_thread
test_threadedtempfile test_threading_local test_time test_timeit test_tokenize test_tomllib test_trace test_traceback
test_tuple test_type_annotations test_type_comments test_typechecks test_types test_typing test_ucn test_unary
test_unicode test_unicode_identifiers test_unicodedata test_unittest test_univnewlines test_unpack test_unpack_ex
test_urllib test_urlparse test_userdict test_userlist test_userstring test_utf8_mode test_utf8source test_uuid
test_warnings test_wave test_weakref test_weakset test_with test_wsgiref test_xml_dom_minicompat test_xml_etree
test_xmlrpc test_yield_from test_zipapp test_zipfile test_zipimport test_zlib test_dis test_code test_asyncio
""".split()  # noqa: SIM905 - read as words

PACKAGES = """
networkx/utils networkx/classes networkx/readwrite networkx/generators networkx/algorithms
sympy/core sympy/utilities sympy/printing sympy/parsing sympy/sets sympy/logic sympy/matrices sympy/polys
sympy/combinatorics sympy/functions sympy/ntheory sympy/geometry sympy/series
""".split()  # noqa: SIM905 - read as words

_BYTECODE = "reads the code or the line table of its own functions"
_TRACING = "traces or profiles its own functions, and sees the sites"
_REFERENCES = "counts references to None or to a class, which calls hold"
_RECURSION = "counts levels of recursion: a watched function in Python takes one more"
EXPECTED: dict[str, str] = {
    "test.test_dis.": _BYTECODE,
    "test.test_compile.TestSpecifics.test_32_63_bit_values": _BYTECODE,
    "test.test_compile.TestSpecifics.test_lineno_attribute": _BYTECODE,
    "test.test_compile.TestSpecifics.test_merge_constants": _BYTECODE,
    "test.test_marshal.CodeTestCase.": "marshals the code of its own functions, which has objects in its constants",
    "test.test_sys.SizeofTest.test_objecttypes": "expects the size of a frame, whose stack is two entries larger",
    "every test.test_sys.SysModuleTest.test_refcount": _REFERENCES,
    "every test.test_xml_etree.BugsTest.test_bug_xmltoolkit63": _REFERENCES,
    "every test.test_capi.test_misc.CAPITest.test_c_subclass_of_heap_ctype_with_del_modifying_dunder_class_only_"
    "decrefs_once": _REFERENCES,
    "every test.test_support.TestSupport.test_recursion": _RECURSION,
    "test.test_frame.TestIncompleteFrameAreInvisible.test_sneaky_frame_object": "makes a frame in a garbage collection",
    "every test.test_gc.": "counts the objects that a call makes",
    "test.test_sys_settrace.": _TRACING,
    "every test_sys_settrace: has not ended": "keeps the frames of its traces, with the calls in them",
    "test.test_sys_setprofile.": _TRACING,
    "every test_sys_setprofile: has not ended": "keeps the frames of its traces, with the calls in them",
    "test.test_capi.test_misc.Test_Pep523API.": "records the frames that the interpreter evaluates, and sees the sites",
    "test.test_trace.": _TRACING,
    "test.test_bdb.": _TRACING,
    "every test.test_traceback.TracebackFormatTests.test_recursive_traceback": _RECURSION,
    "every test.test_traceback.TestTracebackException.test_long_context_chain": _RECURSION,
}
"""Parts of a mode and a test's name, and why the outcome differs: found with Python 3.11.7."""


@dataclass
class Comparison:
    """One file or folder of tests in all modes."""

    name: str
    tests: int = 0
    unstable: int = 0
    calls: int = 0
    differences: dict[str, list[str]] = field(default_factory=dict)
    """By mode: the tests that differ, with both outcomes."""
    problem: str | None = None
    """Why nothing was compared."""
    seconds: dict[str, float] = field(default_factory=dict)
    """By run."""

    @property
    def explained(self) -> list[str]:
        return [f"{text}: {why}" for text, why in self._reasons() if why is not None]

    @property
    def unexplained(self) -> list[str]:
        return [text for text, why in self._reasons() if why is None]

    def _reasons(self) -> Iterable[tuple[str, str | None]]:
        for mode, differences in self.differences.items():
            for each in differences:
                text = f"{mode} {each}"
                yield text, next((why for key, why in EXPECTED.items() if key in text), None)


class Runner:
    """Starts one process for each run."""

    def __init__(self, folder: Path, limit_s: float) -> None:
        self._folder = folder
        self._limit_s = limit_s

    def run(self, name: str, mode: str) -> dict[str, Any] | str:
        """Return what the process wrote, or the end of its output."""
        kind = "stdlib" if name.startswith("test_") else "pytest"
        out = self._folder / f"{name.replace('/', '.')}.{mode}.json"
        out.unlink(missing_ok=True)
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-X", "faulthandler", str(RUNNER), kind, name, mode, str(out), str(self._limit_s)]
        log = self._folder / f"{out.stem}.log"
        # Processes that a test leaves behind keep the output open, so it is a file and not a pipe.
        with log.open("wb") as output:
            try:
                done = subprocess.run(
                    command, stdout=output, stderr=output, env=environment, stdin=subprocess.DEVNULL,
                    timeout=self._limit_s + 30, check=False, cwd=self._folder, start_new_session=True,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                return "the process did not end"
        if out.exists():
            return json.loads(out.read_text(encoding="utf-8"))
        text = log.read_text(encoding="utf-8", errors="replace")
        if "Timeout (" in text:
            return f"no result after {self._limit_s:.0f} s"
        return text.strip()[-600:] or f"exit code {done.returncode}"

    def compare(self, name: str) -> Comparison:
        """Return the tests of a file whose outcome differs."""
        found = Comparison(name)

        def timed(mode: str) -> dict[str, Any] | str:
            begin_s = time.monotonic()
            result = self.run(name, mode)
            found.seconds[mode] = round(time.monotonic() - begin_s, 1)
            return result

        plain = timed("plain")
        if isinstance(plain, str):
            found.problem = f"does not run plain: {plain.splitlines()[-1]}"
            return found
        rewritten = {mode: timed(mode) for mode in MODES}
        outcomes = plain["outcomes"]
        different = {mode: _different(outcomes, result) for mode, result in rewritten.items()}
        unstable: set[str] = set()
        if any(different.values()):
            unstable = _different(outcomes, self.run(name, "plain"))
        found.tests = len(outcomes.keys() - unstable)
        found.unstable = len(unstable)
        for mode, result in rewritten.items():
            if isinstance(result, str):
                found.differences[mode] = [f"{name} (the whole run): {result}"]
                continue
            found.differences[mode] = [
                f"{test}: {outcomes.get(test)} -> {result['outcomes'].get(test)}"
                for test in sorted(different[mode] - unstable)
            ]
            found.differences[mode] += [f"{name}: has not ended: {each}" for each in result["open"]]
            found.calls = result["begun"]
        return found


def _different(outcomes: dict[str, Any], result: dict[str, Any] | str) -> set[str]:
    others = {} if isinstance(result, str) else result["outcomes"]
    return {test for test in outcomes.keys() | others.keys() if outcomes.get(test) != others.get(test)}


def main() -> int:
    """Print a line for each file as it ends, and a summary."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("names", nargs="*", help="Files of the standard library's tests, folders of packages.")
    arguments.add_argument("--part", choices=("stdlib", "all-stdlib", "packages"))
    arguments.add_argument("--workers", type=int, default=2)
    arguments.add_argument("--limit-s", type=float, default=240, help="Seconds for one run of one file.")
    arguments.add_argument("--out", type=Path, help="Write each result here; files that are in it are not run again.")
    arguments.add_argument("--keep", type=Path, help="A folder for the outcomes of each run.")
    chosen = arguments.parse_args()
    names = chosen.names or _names(chosen.part)
    known = _read(chosen.out)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        folder = chosen.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        runner = Runner(folder, chosen.limit_s)
        pool = ThreadPoolExecutor(chosen.workers)
        waiting = [pool.submit(runner.compare, name) for name in names if name not in known]
        done = [known[name] for name in names if name in known]
        print(f"{'tests of':32}{'tests':>7}{'unstable':>9}{'calls watched':>15}{'unwatched':>10}{'every':>7}{'s':>6}")
        for each in done:
            print_line(each)
        try:
            for future in as_completed(waiting):
                done.append(future.result())
                print_line(done[-1])
                if chosen.out is not None:
                    with chosen.out.open("a", encoding="utf-8") as out:
                        out.write(json.dumps(asdict(done[-1])) + "\n")
        except KeyboardInterrupt:
            print("interrupted: the rest was not run")
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        return print_summary(done, len(names) - len(done))


def _names(part: str | None) -> list[str]:
    if part == "all-stdlib":
        import test

        folder = Path(str(test.__file__)).parent
        return sorted(path.stem for path in folder.glob("test_*") if path.suffix in ("", ".py"))
    return {None: [*STDLIB, *PACKAGES], "stdlib": STDLIB, "packages": PACKAGES}[part]


def _read(out: Path | None) -> dict[str, Comparison]:
    if out is None or not out.exists():
        return {}
    lines = map(json.loads, out.read_text(encoding="utf-8").splitlines())
    return {each["name"]: Comparison(**each) for each in lines}


def print_line(each: Comparison) -> None:
    """Print one file."""
    if each.problem is not None:
        print(f"{each.name:32}{each.problem[:90]}", flush=True)
        return
    counts = [len(each.differences[mode]) for mode in MODES]
    seconds = sum(each.seconds.values())
    print(
        f"{each.name:32}{each.tests:7}{each.unstable:9}{each.calls:15}{counts[0]:10}{counts[1]:7}{seconds:6.0f}",
        flush=True,
    )
    for difference in each.unexplained:
        print(f"    {difference[:300]}", flush=True)


def print_summary(done: list[Comparison], not_run: int) -> int:
    """Print the sums; return 1 if a difference is not explained."""
    compared = [each for each in done if each.problem is None]
    print(
        f"{len(compared)} files or folders compared, {len(done) - len(compared)} do not run plain, {not_run} not run: "
        f"{sum(each.tests for each in compared)} tests, {sum(each.unstable for each in compared)} unstable, "
        f"{sum(each.calls for each in compared)} calls watched"
    )
    explained = [text for each in compared for text in each.explained]
    unexplained = [text for each in compared for text in each.unexplained]
    for title, texts in (("explained", explained), ("not explained", unexplained)):
        print(f"{len(texts)} differences {title}")
        print("".join(f"  {text}\n" for text in texts), end="")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
