# SPDX-License-Identifier: GPL-2.0
"""Functions that the host tools share: they find paths and toolchains, and run commands with a time
limit."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

REPO = pathlib.Path(__file__).resolve().parents[2]
PROTO = REPO / "rust/proto"
FUZZ = PROTO / "fuzz"
RDS = REPO / "rust/rds_proto"
# The protocol cores, each of which is a crate of cargo.
CORES = (PROTO, RDS)
TARGET = "x86_64-unknown-linux-gnu"


class HostError(Exception):
    """Raised if a step fails. The text describes the failure."""


def cache():
    """Returns the directory of the artefacts. The environment variable `XPRTRDMA_CACHE` overrides
    the default."""
    own = os.environ.get("XPRTRDMA_CACHE")
    if own:
        return pathlib.Path(own).resolve()
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(base).resolve() / "xprtrdma_rs"


def environment(**more):
    """Returns the environment for cargo. With this environment cargo writes its output outside the
    repository."""
    env = dict(os.environ, CARGO_TARGET_DIR=str(cache() / "cargo"), CARGO_TERM_COLOR="never",
               CARGO_NET_RETRY="3")
    env.pop("RUSTFLAGS", None)
    env.update(more)
    return env


def run(argv, seconds, env=None, cwd=REPO, log=None, quiet=False):
    """Runs a command for at most `seconds` and returns its output. Raises HostError if the command
    fails.

    The command gets a new process group. If the time is over, the whole group is killed.
    """
    argv = [str(arg) for arg in argv]
    with subprocess.Popen(argv, cwd=cwd, env=env or environment(), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", start_new_session=True) as process:
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            raise HostError(f"{argv[0]} ran longer than {seconds} s\n{tail(output)}") from None
    if log:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(output)
    if process.returncode and not quiet:
        raise HostError(f"{' '.join(argv)}: status {process.returncode}\n{tail(output)}")
    return output


def tail(text, lines=40):
    """Returns the last lines of an output, indented."""
    return "\n".join("    " + line for line in text.splitlines()[-lines:])


def cargo(*args, toolchain=None):
    """Returns a cargo command line for a toolchain of rustup. Without `toolchain`, the command line
    uses the default toolchain."""
    return ["cargo", *([f"+{toolchain}"] if toolchain else []), *args]


def nightly():
    """Returns the name of a nightly toolchain, or None if rustup has none."""
    if not shutil.which("rustup"):
        return None
    listed = run(["rustup", "toolchain", "list"], 30, quiet=True)
    names = [line.split()[0] for line in listed.splitlines() if line.startswith("nightly")]
    return names[0] if names else None


def compiler(toolchain=None):
    """Returns the version of the Rust compiler, as the compiler prints its version."""
    return run(["rustc", *([f"+{toolchain}"] if toolchain else []), "--version"], 60).strip()


def say(text):
    """Prints a line of progress."""
    print(text, flush=True)


def main(function):
    """Runs a tool, and exits with its status. If the tool raises a `HostError`, prints the text of
    the error and exits with status 1."""
    started = time.monotonic()
    try:
        status = function()
    except HostError as error:
        print(f"error: {error}", file=sys.stderr)
        status = 1
    except KeyboardInterrupt:
        status = 130
    if os.environ.get("XPRTRDMA_TIMES"):
        say(f"# {time.monotonic() - started:.1f} s")
    sys.exit(status)
