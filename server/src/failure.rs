//! Why a command ends early: the message, and the exit code that tells a script who has to act.

use crate::greeting::write_while_read;

/// Why a command ended without having done its work.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The command line is wrong, or it asked for help or version.
    #[error("{0}")]
    Usage(#[from] clap::Error),
    /// The configuration, or what it names, is wrong; one sentence for each thing that the operator has to mend.
    #[error("{}", .0.join("\n"))]
    Operator(Vec<String>),
    /// Valid input, but something failed at run time.
    #[error("{0}")]
    Runtime(String),
}

impl Failure {
    /// One thing that the operator has to mend: exit code 2.
    pub fn operator(text: impl Into<String>) -> Self {
        Self::Operator(vec![text.into()])
    }

    /// All of these together; `None`: there are none. One at run time counts as something to mend beside others.
    pub fn all(failures: impl Iterator<Item = Failure>) -> Option<Self> {
        let line = |failure: Failure| match failure {
            Self::Operator(lines) => lines,
            Self::Usage(error) => vec![error.to_string()],
            Self::Runtime(line) => vec![line],
        };
        let lines: Vec<String> = failures.flat_map(line).collect();
        (!lines.is_empty()).then_some(Self::Operator(lines))
    }

    /// A failure at run time: exit code 1.
    pub fn runtime(text: impl Into<String>) -> Self {
        Self::Runtime(text.into())
    }

    /// 0 for help and version, 1 for a failure at run time, 2 for what the operator has to mend.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(error) => u8::from(error.use_stderr()) * 2,
            Self::Operator(_) => 2,
            Self::Runtime(_) => 1,
        }
    }

    /// Prints the message, on the stream where it belongs. A closed stream is no failure, and what nobody reads is left out: a
    /// start that failed has to end.
    pub fn print(&self) {
        match self {
            Self::Usage(error) => {
                let _ = error.print();
            }
            Self::Operator(lines) => lines.iter().for_each(|line| print_line(line)),
            Self::Runtime(line) => print_line(line),
        }
    }
}

fn print_line(line: &str) {
    let line = format!("ackpace: {line}\n");
    let _ = write_while_read(&std::io::stderr(), line.as_bytes());
}
