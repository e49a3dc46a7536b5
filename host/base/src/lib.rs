//! What the two privileged crates share, `host/` and `receive/`: rights, errors, signals, and programs for the kernel.

/// A line on standard error. A closed stream is no reason to end, least of all with something that has to be undone.
#[macro_export]
macro_rules! say {
    ($($word:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), $($word)*);
    }};
}

/// A line on standard output, likewise.
#[macro_export]
macro_rules! tell {
    ($($word:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stdout(), $($word)*);
    }};
}

pub mod bpf;
pub mod capabilities;
pub mod clock;
pub mod failure;
pub mod fields;
pub mod lines;
pub mod lock;
pub mod signals;
