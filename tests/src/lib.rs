//! End-to-end tests: the built server, the real kernel, real clients.
