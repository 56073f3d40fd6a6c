"""How many wrong kernels the self-check's probes catch: `python -m tests.trust.mutants`.

Every kernel's sources are made wrong in small ways (wgsl_mutations.py) and run on the operation's
probes, as the self-check runs a source that it does not know. A mutant is killed when a probe
tells it from the reference, when it breaks off with an error, or when it hangs. A line that stands
in several sources of a kernel is made wrong in up to SOURCES of them, one after the other, and one
that is caught counts: a driver that gets it wrong does so in all. Mutants that do not compile don't
count, nor do those that compute the same (equivalent.py says why).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from queue import Empty, Queue
from typing import Any, NamedTuple

import tensai
from tensai.errors import KernelError, TensaiError
from tensai.operation import OPERATIONS, Job, Kernel, Operation, Probe
from tensai.selfcheck import SelfCheck, probe_arguments

from . import equivalent
from .wgsl_mutations import Mutation, mutations

SECONDS = 30  # that one mutant may take
ASKED = 60  # what a process is asked before another takes its place: drivers keep what they compile
SOURCES = 24  # in which a line is made wrong at most
SERVE = "import sys; sys.path.insert(0, sys.argv[1]); from trust.mutants import serve; serve()"
OUTCOMES = ("killed", "survived", "refused", "equivalent")


class Mutant(NamedTuple):
    """A wrong source in place of one that an operation's kernel uses, and others wrong alike."""

    source: str
    mutation: Mutation
    others: Sequence[Mutant] = ()


class Checker(SelfCheck):
    """A device's self-check that runs mutants, knowing each probe's right answer."""

    def __init__(self, device: Any) -> None:
        super().__init__(device)
        self._sources: dict[tuple[str, str], Counter[str]] = {}
        self._uses: dict[str, list[tuple[Probe, Job]]] = {}  # of the last kernel's sources
        self._mutants: dict[tuple[str, str], list[Mutant]] = {}
        self._answers: dict[int, Any] = {}
        for operation in OPERATIONS.values():
            operation.compute = self._known(operation.compute)  # type: ignore[method-assign]

    def _known(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        def computed(arguments: Any, result: Any, arrays: Any) -> Any:
            if self._probing not in self._answers:
                copies = [array.copy() for array in arrays]
                self._answers[self._probing] = compute(arguments, result, copies)
            return self._answers[self._probing]

        return computed

    def kernels(self) -> list[tuple[str, str]]:
        """(operation, kernel) of all that this device can run."""
        found = [
            (operation.name, kernel.name)
            for operation in OPERATIONS.values()
            for kernel in operation.kernels
            if self.sources(operation.name, kernel.name)
        ]
        return list(dict.fromkeys(found))

    def sources(self, name: str, kernel_name: str) -> Counter[str]:
        """The sources of a kernel, with how many probes use each."""
        key = name, kernel_name
        if key not in self._sources:
            operation = OPERATIONS[name]
            self._sources[key] = Counter(
                source
                for kernel in _named(operation, kernel_name)
                for probe in operation.probes()
                if (job := self._job(operation, kernel, probe_arguments(operation, probe)))
                for source in dict.fromkeys(step.source for step in job.steps)
            )
        return self._sources[key]

    def mutants(self, name: str, kernel_name: str) -> list[Mutant]:
        """The mutants of a kernel: one of all lines that are alike."""
        key = name, kernel_name
        if key not in self._mutants:
            alike: dict[Any, list[Mutant]] = {}
            self._uses.clear()
            sources = self.sources(*key)
            for source in sources:
                for mutation in mutations(source):
                    alike.setdefault(mutation.key, []).append(Mutant(source, mutation))
            chosen = []
            for group in alike.values():
                group.sort(key=lambda mutant: _order(mutant.source, mutant.mutation.name))
                group.sort(key=lambda mutant: -sources[mutant.source])  # the most probed first
                of_source: dict[str, Mutant] = {}
                for mutant in group:
                    of_source.setdefault(mutant.source, mutant)
                first, *others = list(of_source.values())[:SOURCES]
                chosen.append(first._replace(others=others))
            self._mutants[key] = sorted(chosen, key=lambda mutant: _order(mutant.mutation.name))
        return self._mutants[key]

    def outcome(self, name: str, kernel_name: str, mutant: Mutant) -> tuple[str, str]:
        """What became of a mutant, and what was said about it."""
        outcomes = []
        for one in (mutant, *mutant.others):
            outcomes.append(self._outcome(name, kernel_name, one))
            if outcomes[-1][0] == "killed":
                return outcomes[-1]
        return max(outcomes, key=lambda outcome: outcome[0] == "survived")

    def _outcome(self, name: str, kernel_name: str, mutant: Mutant) -> tuple[str, str]:
        operation = OPERATIONS[name]
        if mutant.source not in self._uses:
            self._uses[mutant.source] = [
                use
                for kernel in _named(operation, kernel_name)
                for use in self.uses(operation, kernel, mutant.source)
            ]
        users = self._uses[mutant.source]
        for source in mutant.mutation.sources:
            try:
                outcome, why = self._try(operation, users, mutant.source, source)
            finally:
                pipelines = self.device._pipelines
                for key in [key for key in pipelines if key[0] == source]:
                    del pipelines[key]
            if outcome != "survived":
                return outcome, why
        return "survived", ""

    def _try(
        self, operation: Operation, users: Sequence[tuple[Probe, Job]], source: str, mutated: str
    ) -> tuple[str, str]:
        for _, job in users:
            for step in job.steps:
                if step.source != source:
                    continue
                try:
                    self.device.pipeline(mutated, len(step.params), step.label, True)
                except KernelError as error:
                    return "refused", str(error)
        for place, (probe, job) in enumerate(users):
            steps = job.steps
            job.steps = [
                step._replace(source=mutated) if step.source == source else step for step in steps
            ]
            self._probing = id(probe)
            try:
                wrong = self._run(operation, probe, job)
            except TensaiError as error:
                wrong = f"{type(error).__name__}: {error}"
            finally:
                job.steps = steps
            if wrong:
                return "killed", f"probe {place + 1}: {wrong}"
        return "survived", ""


def _named(operation: Operation, name: str) -> list[Kernel]:
    """The kernels of an operation that have a name: it may be two."""
    return [kernel for kernel in operation.kernels if kernel.name == name]


def _order(*texts: str) -> bytes:
    """A place in an order that has nothing to do with the texts, but is always the same."""
    return hashlib.sha256("\0".join(texts).encode()).digest()


# A process that runs mutants ---------------------------------------------------------------------


def serve() -> None:
    """Answer requests, a line of JSON each, on standard output."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.environ |= {"TENSAI_SELF_CHECK": "always", "TENSAI_SHADER_CHECKS": "1"}
    with tensai.open() as device:
        checker = Checker(device)
        for line in sys.stdin:
            request = json.loads(line)
            if not request:
                answer: Any = checker.kernels()
            elif len(request) == 2:
                answer = [mutant.mutation[:4] for mutant in checker.mutants(*request)]
            else:
                name, kernel, number = request
                answer = checker.outcome(name, kernel, checker.mutants(name, kernel)[number])
            print(json.dumps(answer), file=answers, flush=True)


class Worker:
    """A process that serves; a new one takes the place of one that crashed or hangs."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._asked = 0

    def ask(self, request: Sequence[Any], seconds: float | None = None) -> Any:
        """The answer, or None for a process that went, or needed more time than it had."""
        self._asked += 1
        if self._asked > ASKED and len(request) == 2:  # a new kernel
            self.close()
        if self._process is None:
            self._asked = 0
            self._process = subprocess.Popen(
                [sys.executable, "-c", SERVE, str(Path(__file__).parents[1])],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=None if os.environ.get("TENSAI_DEBUG") else subprocess.DEVNULL,
                text=True,
            )
            self._lines: Queue[str] = Queue()
            threading.Thread(target=self._read, args=(self._process, self._lines)).start()
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._lines.get(timeout=seconds)
        except (Empty, BrokenPipeError):
            line = ""
        if not line:
            self.close()
            return None
        return json.loads(line)

    @staticmethod
    def _read(process: subprocess.Popen[str], lines: Queue[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put("")

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


# Scores ------------------------------------------------------------------------------------------


class Score:
    """What became of a kernel's mutants."""

    def __init__(self, operation: str, kernel: str) -> None:
        self.operation = operation
        self.kernel = kernel
        self.counts = dict.fromkeys(OUTCOMES, 0)
        self.survivors: list[str] = []
        self.equivalents: list[tuple[str, str]] = []  # mutation, why nothing can differ

    def add(self, name: str, outcome: str) -> None:
        why = equivalent.reason(self.operation, self.kernel, name) if outcome == "survived" else ""
        if why:
            outcome = "equivalent"
            self.equivalents.append((name, why))
        elif outcome == "survived":
            self.survivors.append(name)
        self.counts[outcome] += 1

    @property
    def score(self) -> float:
        """Of the mutants that compute something else, the share that was killed."""
        tried = self.counts["killed"] + self.counts["survived"]
        return self.counts["killed"] / tried if tried else 1.0


def run(
    most: int, processes: int = 2, only: Callable[[str, str], bool] = lambda name, kernel: True
) -> Iterator[Score]:
    """The score of each kernel, of at most `most` mutants of it (0: all)."""
    workers = [Worker() for _ in range(processes)]
    try:
        kernels = [key for key in workers[0].ask([]) if only(*key)]
        done: Queue[Score] = Queue()
        waiting: Queue[Any] = Queue()
        for key in kernels:
            waiting.put(key)

        def work(worker: Worker) -> None:
            while True:
                try:
                    name, kernel = waiting.get_nowait()
                except Empty:
                    return
                done.put(_score(worker, name, kernel, most))

        threads = [threading.Thread(target=work, args=(worker,)) for worker in workers]
        for thread in threads:
            thread.start()
        for _ in kernels:
            yield done.get()
    finally:
        for worker in workers:
            worker.close()


def _score(worker: Worker, name: str, kernel: str, most: int) -> Score:
    score = Score(name, kernel)
    tried = 0
    for number, mutation in enumerate(worker.ask([name, kernel])):
        if most and tried == most:
            break
        outcome = worker.ask([name, kernel, number], SECONDS) or ("killed", "hangs or crashes")
        tried += outcome[0] != "refused"
        score.add(Mutation(*mutation, (), ()).name, outcome[0])
    return score


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.trust.mutants", description=__doc__)
    parser.add_argument("names", metavar="NAME", nargs="*", help="only this kernel or operation")
    parser.add_argument("--most", metavar="N", type=int, default=0, help="mutants of each kernel")
    parser.add_argument("--processes", metavar="N", type=int, default=2, help="(default: 2)")
    parser.add_argument("--survivors", action="store_true", help="list the mutants that survived")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    options = parser.parse_args(arguments)
    wanted = set(options.names)
    scores = []
    for score in run(
        options.most,
        options.processes,
        lambda name, kernel: not wanted or bool(wanted & {name, kernel}),
    ):
        scores.append(score)
        if options.json:
            found = dict(vars(score))
            print(json.dumps({**found, "score": round(score.score, 4)}), flush=True)
            continue
        label = f"{score.operation}/{score.kernel}"
        counts = " ".join(f"{count:5} {name}" for name, count in score.counts.items())
        print(f"{label:45} {score.score:7.1%} {counts}", flush=True)
        if options.survivors:
            for name in score.survivors:
                print(f"    {name}")
    if not scores:
        print(f"no kernel or operation is called {' or '.join(wanted)}", file=sys.stderr)
        return 2
    return 0 if min(score.score for score in scores) > 0.9 else 1


if __name__ == "__main__":
    sys.exit(main())
