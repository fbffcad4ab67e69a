"""Of the pages that Spark says about a failure, the one line that tells what happened."""

import pytest

from seriatim.engine.spark import _cause

WORKER = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "lane.py", line 190, in take
    apply(session, message)
    ~~~~~^^^^^^^^^^^^^^^^^^
KeyError: 'size'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "job.py", line 17, in apply
    HOARD.append(bytearray(800_000))
MemoryError

	at org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:640)
"""
JAVA = """Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times
	at org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2844)
Caused by: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)
	at org.apache.spark.api.python.BasePythonRunner.compute(PythonRunner.scala:1)
Caused by: java.io.EOFException
	at java.base/java.io.DataInputStream.readFully(DataInputStream.java:202)
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (WORKER, "a Python worker raised MemoryError"),
        (JAVA, "Caused by: java.io.EOFException"),
        ("\n  Job 3 cancelled\n", "Job 3 cancelled"),
        ("", "no message"),
    ],
)
def test_the_telling_line_is_found(text: str, told: str) -> None:
    assert _cause(text) == told
