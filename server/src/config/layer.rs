//! The values from one source of configuration: keys, raw values, and their places.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;

use crate::options::{Listen, ValueError, shown};

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The default: no source gave it.
    Default,
    /// A line of the configuration file.
    File {
        /// The file as it was named.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
    },
    /// A variable of the environment.
    Environment(String),
    /// The command line.
    CommandLine,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", shown(&path.to_string_lossy())),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::CommandLine => f.write_str("command line"),
        }
    }
}

/// The values given for one key: as many as the list has, one for anything else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// As they would stand on the command line.
    pub values: Vec<OsString>,
    /// Where they came from.
    pub origin: Origin,
}

/// One source: its keys, as written in the configuration file, and the values for each.
pub type Layer = BTreeMap<String, Given>;

/// Adds values to those that the layer has for this key. The first ones say where they came from.
pub fn give(layer: &mut Layer, key: &str, values: Vec<OsString>, origin: Origin) {
    let place = layer.entry(key.to_owned());
    let none = Given {
        values: Vec::new(),
        origin,
    };
    place.or_insert(none).values.extend(values);
}

/// Adds the address to listen on that a port stands for (`--port`, `ACKPACE_PORT`).
pub fn give_port(layer: &mut Layer, port: &OsStr, origin: Origin) -> Result<(), ValueError> {
    let listen = Listen::port(&port.to_string_lossy())?;
    give(layer, "listen", vec![listen.to_os_string()], origin);
    Ok(())
}

/// An error at one place of a configuration file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}:{line}:{column}: {message}", shown(&path.to_string_lossy()))]
pub struct ConfigError {
    /// The file as it was named.
    pub path: PathBuf,
    /// Line, from 1.
    pub line: usize,
    /// Character in the line, from 1.
    pub column: usize,
    /// What is wrong, and what to write instead.
    pub message: String,
}

/// Why no configuration could be made from the sources. The operator has to mend all of these.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file is missing, or can't be read.
    #[error("{}: cannot read the configuration file: {error}", shown(&path.to_string_lossy()))]
    Unreadable {
        /// The file as it was named.
        path: PathBuf,
        error: std::io::Error,
    },
    /// The file is longer than a configuration may be.
    #[error("{}: longer than {most_bytes} bytes, so it is no configuration file", shown(&path.to_string_lossy()))]
    TooLong {
        /// The file as it was named.
        path: PathBuf,
        /// The longest file that is read.
        most_bytes: u64,
    },
    /// Something in the file is wrong.
    #[error(transparent)]
    File(#[from] ConfigError),
    /// A value from somewhere else is wrong.
    #[error("{place}: {error}")]
    Value {
        place: String,
        /// What is wrong with the value.
        error: ValueError,
    },
}
