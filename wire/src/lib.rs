//! Pure parsers and planners: bytes from outside to values, values to bytes.
