//! The commands to a running swarm, one line each.

/// A command. Classes are identified by name.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SwarmCommand {
    /// `rate CLASS BITS_PER_S`: all clients of the class read at this rate; 0 = as fast as possible.
    Rate {
        /// Name of the class.
        class: String,
        /// The rate.
        bits_per_s: u64,
    },
    /// `requests CLASS PER_S`: changes the offered rate of an open loop.
    Requests {
        /// Name of the class.
        class: String,
        /// Requests per second.
        per_s: f64,
    },
    /// `pause CLASS SECONDS`: all clients of the class stop reading for that time.
    Pause {
        /// Name of the class.
        class: String,
        /// Duration in seconds.
        for_s: f64,
    },
    /// `leave CLASS`: all clients of the class reset their connections at once and never return. The answer
    /// comes when they have done so.
    Leave {
        /// Name of the class.
        class: String,
    },
    /// `reset`: the figures start again from zero.
    Reset,
    /// `stop`: the run ends, with its summary.
    Stop,
}

impl SwarmCommand {
    /// Parses a line; the error names the allowed commands.
    pub fn parse(line: &str) -> Result<Self, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |text: &str, least: f64| {
            let number = text.parse().ok();
            let allowed = |number: &f64| *number >= least && *number <= 1e12;
            let why = || format!("\"{text}\": not a number from {least} to 1e12");
            number.filter(allowed).ok_or_else(why)
        };
        match words[..] {
            ["rate", class, bits] => Ok(Self::Rate {
                class: class.into(),
                bits_per_s: number(bits, 0.0)? as u64,
            }),
            ["requests", class, per_s] => Ok(Self::Requests {
                class: class.into(),
                per_s: number(per_s, 1e-6)?,
            }),
            ["pause", class, for_s] => Ok(Self::Pause {
                class: class.into(),
                for_s: number(for_s, 0.0)?.min(1e7),
            }),
            ["leave", class] => Ok(Self::Leave {
                class: class.into(),
            }),
            ["reset"] => Ok(Self::Reset),
            ["stop"] => Ok(Self::Stop),
            _ => Err(
                "allowed are: rate CLASS BITS_PER_S, requests CLASS PER_S, pause CLASS SECONDS, leave CLASS, reset, stop"
                    .into(),
            ),
        }
    }

    /// The line that parses to this command.
    pub fn line(&self) -> String {
        match self {
            Self::Rate { class, bits_per_s } => format!("rate {class} {bits_per_s}"),
            Self::Requests { class, per_s } => format!("requests {class} {per_s}"),
            Self::Pause { class, for_s } => format!("pause {class} {for_s}"),
            Self::Leave { class } => format!("leave {class}"),
            Self::Reset => "reset".into(),
            Self::Stop => "stop".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_read_as_it_is_written() {
        for line in [
            "rate slow 2000000",
            "requests a 1.5",
            "pause a 3",
            "leave a",
            "reset",
            "stop",
        ] {
            assert_eq!(SwarmCommand::parse(line).unwrap().line(), line);
        }
        for line in [
            "",
            "rate slow",
            "rate slow -1",
            "rate slow nan",
            "requests a 0",
            "resett",
        ] {
            assert!(SwarmCommand::parse(line).is_err(), "{line}");
        }
    }
}
