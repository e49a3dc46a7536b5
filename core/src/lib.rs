//! Pure policy: every decision of ackpace, without I/O, clock or threads.
