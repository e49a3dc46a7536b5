//! Why a command ends early: the message, and the exit code that tells a script who has to act.

/// Why a command ended without having done its work.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The command line is wrong, or it asked for help or version.
    #[error("{0}")]
    Usage(#[from] clap::Error),
    /// What was asked for can't be; the operator has to mend it.
    #[error("{0}")]
    Operator(String),
    /// Something failed at run time.
    #[error("{0}")]
    Runtime(String),
}

impl Failure {
    /// One thing that the operator has to mend: exit code 2.
    pub fn operator(text: impl Into<String>) -> Failure {
        Failure::Operator(text.into())
    }

    /// A failure at run time: exit code 1.
    pub fn runtime(text: impl Into<String>) -> Failure {
        Failure::Runtime(text.into())
    }

    /// 0 for help and version, 1 for a failure at run time, 2 for what the operator has to mend.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Usage(error) => u8::from(error.use_stderr()) * 2,
            Failure::Operator(_) => 2,
            Failure::Runtime(_) => 1,
        }
    }
}
