//! The default values of the options, as the parser has them.

use clap::{Args, Command, FromArgMatches};

use super::ServeOptions;

impl ServeOptions {
    /// The value of each option that is not given.
    pub fn default_values() -> ServeOptions {
        let command = ServeOptions::augment_args(Command::new("ackpace").no_binary_name(true));
        let matches = command.get_matches_from::<_, &str>([]);
        ServeOptions::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }
}
