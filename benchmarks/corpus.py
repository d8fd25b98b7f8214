"""Run other people's tests rewritten and plain, and compare the outcome of each test.

    python benchmarks/corpus.py                         # the standard library's tests, networkx and sympy
    python benchmarks/corpus.py test_grammar test_super # some of them
    python benchmarks/corpus.py --all-stdlib            # each file of the standard library's tests

Each file runs in processes of its own: plain twice, rewritten with no library watched, and rewritten with every
callable watched. A test whose two plain runs differ is left out and counted. Files that differ for a reason that no
rewriting can avoid are in `EXPECTED`, with the reason. Ends with 1 if another test differs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RUNNER = ROOT / "tests" / "corpus_runner.py"
LIMIT_S = 240
RUNS = ("plain", "plain again", "unwatched", "every")

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
_RECURSION = "counts levels of recursion: a watched function in Python takes one more"
EXPECTED: dict[str, str] = {
    "test.test_dis.": _BYTECODE,
    "test.test_compile.TestSpecifics.test_32_63_bit_values": _BYTECODE,
    "test.test_compile.TestSpecifics.test_lineno_attribute": _BYTECODE,
    "test.test_compile.TestSpecifics.test_merge_constants": _BYTECODE,
    "test.test_marshal.CodeTestCase.": "marshals the code of its own functions, which has objects in its constants",
    "test.test_sys.SizeofTest.test_objecttypes": "expects the size of a frame, whose stack is two entries larger",
    "every test.test_sys.SysModuleTest.test_refcount": "counts references to None, which calls hold",
    "test.test_frame.TestIncompleteFrameAreInvisible.test_sneaky_frame_object": "makes a frame in a garbage collection",
    "every test.test_gc.": "counts the objects that a call makes",
    "test.test_sys_settrace.": _TRACING,
    "test.test_sys_setprofile.": _TRACING,
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
    differences: dict[str, list[str]] = field(default_factory=lambda: {"unwatched": [], "every": []})
    problem: str | None = None
    seconds: float = 0.0


def run_one(kind: str, name: str, mode: str, folder: Path) -> dict[str, object] | str:
    """Return what the runner wrote, or the end of its output."""
    out = folder / f"{name.replace('/', '.')}.{mode.replace(' ', '-')}.json"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-X", "faulthandler", str(RUNNER), kind, name, mode.split()[0], str(out), str(LIMIT_S)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", env=environment, stdin=subprocess.DEVNULL,
            timeout=LIMIT_S + 30, check=False, cwd=folder, start_new_session=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "the process did not end"
    if out.exists():
        return json.loads(out.read_text(encoding="utf-8"))
    return (done.stderr + done.stdout).strip()[-600:] or f"exit code {done.returncode}"


def compare(kind: str, name: str, folder: Path) -> Comparison:
    """Return the tests of a file whose outcome differs."""
    begin_s = time.monotonic()
    found = Comparison(name)
    results = {}
    for run in RUNS:
        result = run_one(kind, name, run, folder)
        if isinstance(result, str):
            if run == "plain":
                found.problem = f"does not run plain: {result.splitlines()[-1] if result else ''}"
                break
            found.differences.setdefault(run, []).append(f"(the whole run) {result}")
            continue
        results[run] = result
    if "plain" in results and "plain again" in results:
        plain, again = results["plain"]["outcomes"], results["plain again"]["outcomes"]
        stable = {test for test in plain if plain[test] == again.get(test)}
        found.tests, found.unstable = len(stable), len(plain.keys() | again.keys()) - len(stable)
        for mode in found.differences:
            if mode in results:
                outcomes = results[mode]["outcomes"]
                different = [test for test in stable if outcomes.get(test) != plain[test]]
                different += [test for test in outcomes if test not in plain and test not in again]
                found.differences[mode] += [
                    f"{test}: {plain.get(test)} -> {outcomes.get(test)}" for test in sorted(different)
                ]
        found.calls = results.get("every", {}).get("begun", 0)
        if "every" in results and results["every"]["begun"] != results["every"]["ended"]:
            found.differences["every"].append(f"{results['every']['begun']} begun, {results['every']['ended']} ended")
    found.seconds = time.monotonic() - begin_s
    return found


def main() -> int:
    """Print a table of the files, their tests and the differences."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("names", nargs="*")
    arguments.add_argument("--all-stdlib", action="store_true")
    arguments.add_argument("--workers", type=int, default=2)
    arguments.add_argument("--keep", type=Path, help="A folder for the outcomes of each run.")
    chosen = arguments.parse_args()
    names = chosen.names or [*STDLIB, *PACKAGES]
    if chosen.all_stdlib:
        import test

        names = sorted(path.stem for path in Path(test.__file__).parent.glob("test_*"))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        folder = chosen.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(chosen.workers) as pool:
            kinds = ["stdlib" if name.startswith("test_") else "pytest" for name in names]
            return report(pool.map(lambda each: compare(*each, folder), zip(kinds, names, strict=True)))


def report(comparisons) -> int:
    """Print each comparison when it is there; return 1 if a difference is not explained."""
    total = Comparison("sum")
    left_out, explained, unexplained = 0, [], []
    print(f"{'tests of':28}{'tests':>7}{'unstable':>9}{'calls watched':>15}{'unwatched':>10}{'every':>7}{'s':>6}")
    for each in comparisons:
        if each.problem is not None:
            left_out += 1
            print(f"{each.name:28}{each.problem[:90]}", flush=True)
            continue
        counts = [len(each.differences[mode]) for mode in ("unwatched", "every")]
        print(
            f"{each.name:28}{each.tests:7}{each.unstable:9}{each.calls:15}{counts[0]:10}{counts[1]:7}"
            f"{each.seconds:6.0f}",
            flush=True,
        )
        total.tests += each.tests
        total.calls += each.calls
        total.unstable += each.unstable
        for mode, differences in each.differences.items():
            for difference in differences:
                test = difference.partition(": ")[0]
                reason = next((why for key, why in EXPECTED.items() if key in f"{mode} {test}"), None)
                (unexplained if reason is None else explained).append(f"{mode}: {difference}  {reason or ''}")
    print(f"{total.tests} tests, {total.unstable} unstable, {total.calls} calls watched, {left_out} files left out")
    for title, differences in (("explained", explained), ("not explained", unexplained)):
        print(f"{len(differences)} differences {title}")
        print("".join(f"  {each}\n" for each in differences), end="")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
