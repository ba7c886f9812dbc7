# SPDX-License-Identifier: GPL-2.0
"""The kernel stacks of tasks that hang, for the diagnostics of a test case that did not end."""

import contextlib
import pathlib

MOST_TASKS = 24


def field(task, name):
    with contextlib.suppress(OSError):
        return (task / name).read_text().strip()
    return ""


def interesting(task, group):
    """Returns whether a task waits uninterruptibly or belongs to the process group of the test
    case."""
    words = field(task, "stat").rpartition(")")[2].split()
    return bool(words) and (words[0] == "D" or words[2] == str(group))


def dump(group):
    """Returns the kernel stacks of tasks that may explain a hang, as lines.

    `group` is the process group of the case. The kernel is also made to log its blocked tasks,
    which include the workers of work queues.
    """
    lines = []
    tasks = [t for p in pathlib.Path("/proc").iterdir() if p.name.isdigit()
             for t in (p / "task").glob("*") if interesting(t, group)]
    for task in tasks[:MOST_TASKS]:
        state = field(task, "stat").rpartition(")")[2].split()[:1]
        lines.append(f"task {task.name} {field(task, 'comm')} {''.join(state)}")
        lines += [f"    {line}" for line in field(task, "stack").splitlines()]
    with contextlib.suppress(OSError):
        pathlib.Path("/proc/sysrq-trigger").write_text("w")
    return lines or ["no task of the case, and none blocked"]
