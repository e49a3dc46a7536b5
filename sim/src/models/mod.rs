//! Devices and paths as state machines: ask with the time, get the time of the answer.
