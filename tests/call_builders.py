"""Builders for tests of `instrument`: calls without a program, on a clock that the test advances."""

from __future__ import annotations

from joulediff.instrument.recorder import CallRecorder
from joulediff.instrument.rewriting.calls import Api, SourceSite
from joulediff.measuring.meters.scripted import FakeClock


class FakeCall:
    """A call as the recorder receives it."""

    def __init__(self, site, api, input_bytes=None):
        self.site, self.api, self.input_bytes, self.mark = site, api, input_bytes, None


class FakeProgram:
    """A program of one thread: calls advance the clock, and use CPU time at a rate of cores."""

    def __init__(self, *, clock=None, cores=1.0, alone=None, starts=True):
        self.clock = clock or FakeClock(10.0)
        self.cpu_s, self.cores = 0.0, cores
        self.recorder = CallRecorder(wait=None, now_s=self.clock.now, cpu_s=lambda: self.cpu_s, alone=alone)
        self._sites, self._apis = {}, {}
        self.start_s = self.recorder.start() if starts else None

    def run(self, seconds, *, cores=None):
        """Let the program's own code, or the innermost call, run."""
        self.cpu_s += seconds * (self.cores if cores is None else cores)
        self.clock.advance(seconds)

    def site(self, line):
        return self._sites.setdefault(line, SourceSite("train.py", line, 4, f"f{line}", "main"))

    def api(self, name):
        return self._apis.setdefault(name, Api(name, name.partition(".")[0]))

    def call(self, name, line, inside, *, cores=None, input_bytes=None):
        """Call an API: `inside` is its seconds, or a function that runs inside."""
        call = FakeCall(self.site(line), self.api(name), input_bytes)
        self.recorder.begin(call)
        try:
            if callable(inside):
                inside()
            else:
                self.run(inside, cores=cores)
        finally:
            self.recorder.end(call)
