# SPDX-License-Identifier: GPL-2.0
"""A helper program in the server machine. The helper accesses files locally and not over NFS.

The text of this file is sent to the server machine, where Python runs it. The helper reads one JSON
request per line, and writes one JSON answer per line.
"""

import base64
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time

# A dictionary of the files that are kept open or locked. The key is the path of a file, and the
# value is its file descriptor.
OPEN = {}


def digest(path):
    """Returns the size and the checksum of a file."""
    with open(path, "rb") as data:
        return [os.fstat(data.fileno()).st_size, hashlib.file_digest(data, "sha256").hexdigest()]


def blocks(path, size):
    """Returns a checksum for each block, to find where two files differ."""
    with open(path, "rb") as data:
        return [hashlib.sha256(piece).hexdigest() for piece in iter(lambda: data.read(size), b"")]


def read(path, offset, length):
    with open(path, "rb") as data:
        data.seek(offset)
        return base64.b64encode(data.read(length)).decode()


def write(path, offset, text):
    """Writes to a file without truncating it. Creates the file if it does not exist. Opens the file
    for each write."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        return os.pwrite(fd, base64.b64decode(text), offset)
    finally:
        os.close(fd)


def tree(top):
    """Returns a dictionary from the name of each file below a directory to its size and checksum.
    """
    found = {}
    for where, _, names in os.walk(top):
        for name in names:
            path = os.path.join(where, name)
            found[os.path.relpath(path, top)] = digest(path)
    return found


def names(top):
    return sorted(os.listdir(top))


def create(top, count, prefix):
    """Creates many empty files."""
    for number in range(count):
        os.close(os.open(f"{top}/{prefix}{number}", os.O_CREAT | os.O_WRONLY, 0o644))


def mkdir(path):
    os.makedirs(path, exist_ok=True)
    os.chmod(path, 0o777)


def rmtree(path):
    shutil.rmtree(path, ignore_errors=True)


def unlink(path):
    """Removes a file if it exists."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def stat(path):
    s = os.lstat(path)
    return {"size": s.st_size, "mode": s.st_mode, "nlink": s.st_nlink, "ino": s.st_ino,
            "uid": s.st_uid}


def readlink(path):
    return os.readlink(path)


def getxattr(path, name):
    return base64.b64encode(os.getxattr(path, name)).decode()


def listxattr(path):
    return sorted(os.listxattr(path))


def setxattr(path, name, text):
    os.setxattr(path, name, base64.b64decode(text))


def lock(path, exclusive):
    """Locks a file as a process of the server. Returns False if another process holds the lock."""
    fd = OPEN.setdefault(path, None)
    if fd is None:
        fd = OPEN[path] = os.open(path, os.O_RDWR)
    try:
        fcntl.lockf(fd, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(path):
    os.close(OPEN.pop(path))


def open_for_write(path):
    """Opens a file for writing, as a local program would. Returns how many seconds that took."""
    start = time.monotonic()
    os.close(os.open(path, os.O_RDWR))
    return time.monotonic() - start


def client_states():
    """Returns the state of each NFSv4 client, as the server shows it."""
    top = "/proc/fs/nfsd/clients"
    found = ""
    for client in os.listdir(top):
        try:
            with open(f"{top}/{client}/states") as states:
                found += states.read()
        except OSError:
            pass
    return found


def text(path, value=None):
    """Writes `value` to a control file. Without `value`, returns the content of the file."""
    if value is None:
        with open(path) as file:
            return file.read()
    with open(path, "w") as file:
        file.write(value)
    return None


def open_files(pid):
    """Returns the names of the files that a process has open, one on each line."""
    names = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            names.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except OSError:
            continue  # The process has closed the file after the directory was listed.
    return "\n".join(names)


def run(argv, stdin=""):
    """Runs a command. Returns its status and its output."""
    done = subprocess.run(argv, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=120, check=False)
    return [done.returncode, done.stdout]


def main():
    print("ready", flush=True)
    for line in sys.stdin:
        number, name, args = json.loads(line)
        try:
            answer = {"id": number, "value": globals()[name](*args)}
        except Exception as error:  # noqa: BLE001  # the caller raises it again
            answer = {"id": number, "error": f"{type(error).__name__}: {error}",
                      "errno": getattr(error, "errno", None)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
