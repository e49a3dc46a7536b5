//! The table of options, derived from the definition of [`ServeOptions`] itself: key, variable, shape, check.

use std::any::TypeId;
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, Args, Command};

use crate::limits::LIST_LEN_MAX;
use crate::options::{
    CongestionControl, ExportSpec, Listen, Peer, SendMemory, ServeOptions, Size, TypeOverride,
    ValueError, Workers, shown,
};

/// How a value is written in TOML.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// `true` or `false`.
    Boolean,
    /// A whole number.
    Integer,
    /// A string, or a whole number where that is enough.
    IntegerOrText,
    /// A string.
    Text,
    /// A list of strings.
    List,
    /// A table of strings; on the command line, a list of `KEY=VALUE`.
    Table,
}

impl Shape {
    /// Whether the option may be given several times.
    pub fn is_list(self) -> bool {
        matches!(self, Self::List | Self::Table)
    }

    fn of(arg: &Arg) -> Self {
        let parsed = arg.get_value_parser().type_id();
        let is = |types: &[TypeId]| types.iter().any(|id| parsed == *id);
        match arg.get_action() {
            ArgAction::Append if is(&[TypeId::of::<TypeOverride>()]) => Self::Table,
            ArgAction::Append => Self::List,
            _ if is(&[TypeId::of::<bool>()]) => Self::Boolean,
            _ if is(&[TypeId::of::<u64>()]) => Self::Integer,
            _ if is(&[
                TypeId::of::<Workers>(),
                TypeId::of::<Size>(),
                TypeId::of::<SendMemory>(),
            ]) =>
            {
                Self::IntegerOrText
            }
            _ => Self::Text,
        }
    }
}

/// One option as every source of configuration sees it.
pub struct Setting {
    /// Its key in the configuration file: the long name with `_` for `-`.
    pub key: String,
    /// How its value is written there.
    pub shape: Shape,
    /// Its definition.
    pub arg: Arg,
}

impl Setting {
    /// All options, in the order of their definition.
    pub fn all() -> Vec<Self> {
        let command = ServeOptions::augment_args(Command::new("ackpace"));
        command.get_arguments().map(Self::new).collect()
    }

    fn new(arg: &Arg) -> Self {
        let name = arg.get_long().unwrap_or(arg.get_id().as_str());
        Self {
            key: name.replace('-', "_"),
            shape: Shape::of(arg),
            arg: arg.clone(),
        }
    }

    /// Whether its values are read as `T`.
    pub fn takes<T: 'static>(&self) -> bool {
        self.arg.get_value_parser().type_id() == TypeId::of::<T>()
    }

    /// The environment variable of this option.
    pub fn variable(&self) -> String {
        format!("ACKPACE_{}", self.key.to_uppercase())
    }

    /// How the option is written on the command line.
    pub fn name(&self) -> String {
        match self.arg.get_long() {
            Some(long) => format!("--{long}"),
            None => self.value_name().to_owned(),
        }
    }

    /// The name of the value in help texts.
    pub fn value_name(&self) -> &str {
        let names = self.arg.get_value_names();
        names
            .and_then(|names| names.first())
            .map_or("VALUE", |name| name)
    }

    /// The default, as it would be typed.
    pub fn defaults(&self) -> Vec<OsString> {
        let values = self.arg.get_default_values().iter();
        values.map(|value| value.to_os_string()).collect()
    }

    /// The words to choose from; empty where the value is free.
    pub fn choices(&self) -> Vec<String> {
        let is_choice = !matches!(self.shape, Shape::Boolean);
        let values = self.arg.get_possible_values().into_iter();
        values
            .filter(|_| is_choice)
            .map(|value| value.get_name().to_owned())
            .collect()
    }

    /// A value that it takes, as it would be typed: the default, or one of its kind if that is an empty list.
    pub fn example(&self) -> OsString {
        let first = self.defaults().into_iter().next();
        let choice = || self.choices().into_iter().next().map(OsString::from);
        first.or_else(choice).unwrap_or_else(|| {
            let parsed = self.arg.get_value_parser().type_id();
            let of_kind = [
                (TypeId::of::<TypeOverride>(), "md=text/markdown"),
                (TypeId::of::<CongestionControl>(), "cubic"),
                (TypeId::of::<PathBuf>(), "/srv/other"),
                (TypeId::of::<Listen>(), ":2049"),
                (TypeId::of::<ExportSpec>(), "/pub=192.0.2.0/24"),
                (
                    TypeId::of::<Peer>(),
                    "b=192.0.2.2:7800,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
                ),
            ];
            let example = of_kind.into_iter().find(|(kind, _)| parsed == *kind);
            example.map_or(self.value_name(), |(_, text)| text).into()
        })
    }

    /// The arguments that give `values` on a command line.
    pub fn arguments(&self, values: &[OsString]) -> Vec<OsString> {
        let argument = |value: &OsString| match self.arg.get_long() {
            Some(long) => {
                let mut argument = OsString::from(format!("--{long}="));
                argument.push(value);
                argument
            }
            None => value.clone(),
        };
        values.iter().map(argument).collect()
    }

    pub fn check(&self, value: &OsStr) -> Result<(), ValueError> {
        let command = Command::new("check")
            .no_binary_name(true)
            .disable_help_flag(true)
            .arg(self.arg.clone());
        let mut arguments = self.arguments(&[value.to_owned()]);
        if self.arg.is_positional() {
            arguments.insert(0, "--".into());
        }
        match command.try_get_matches_from(arguments) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.explain(value, &error)),
        }
    }

    /// What is wrong with these values of this option, and with their number.
    pub fn errors(&self, values: &[OsString]) -> Vec<ValueError> {
        let checks = values.iter().map(|value| self.check(value));
        let checks = std::iter::once(self.check_len(values.len())).chain(checks);
        checks.filter_map(Result::err).collect()
    }

    pub fn check_len(&self, len: usize) -> Result<(), ValueError> {
        if len <= LIST_LEN_MAX {
            return Ok(());
        }
        let text = format!("{len} values are too many: {LIST_LEN_MAX} at most");
        Err(ValueError::new(text))
    }

    fn explain(&self, value: &OsStr, error: &clap::Error) -> ValueError {
        let text = value.to_string_lossy();
        if let Some(own) = error.source().and_then(|e| e.downcast_ref::<ValueError>()) {
            return own.clone();
        }
        match error.kind() {
            ErrorKind::InvalidUtf8 => ValueError::new(format!("{} is not UTF-8", shown(&text))),
            _ => ValueError::new(format!(
                "{} is not one of {}",
                shown(&text),
                self.choices().join(", ")
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(key: &str) -> Setting {
        let mut all = Setting::all();
        let at = all.iter().position(|s| s.key == key);
        all.swap_remove(at.expect("a key of ServeOptions"))
    }

    #[test]
    fn shapes_follow_from_types() {
        let shape = |key| setting(key).shape;
        assert_eq!(shape("root"), Shape::Text);
        assert_eq!(shape("listen"), Shape::List);
        assert_eq!(shape("types"), Shape::Table);
        assert_eq!(shape("listing"), Shape::Boolean);
        assert_eq!(shape("rate_min"), Shape::Integer);
        assert_eq!(shape("workers"), Shape::IntegerOrText);
        assert_eq!(shape("memory_max"), Shape::IntegerOrText);
        assert_eq!(shape("follow_symlinks"), Shape::Text);
        assert_eq!(shape("idle_timeout"), Shape::Text);
    }

    #[test]
    fn keys_names_and_variables_follow_from_the_long_name() {
        let names: Vec<_> = Setting::all()
            .iter()
            .map(|s| format!("{} {} {}", s.key, s.name(), s.variable()))
            .collect();
        assert_eq!(names[0], "root DIR|FILE|URL ACKPACE_ROOT");
        assert!(names.contains(&"rate_min --rate-min ACKPACE_RATE_MIN".to_owned()));
        assert_eq!(names.len(), 56);
    }

    #[test]
    fn every_default_is_a_value_that_can_be_given() {
        for setting in Setting::all() {
            for value in setting.defaults() {
                assert_eq!(setting.check(&value), Ok(()), "{}", setting.key);
            }
        }
    }

    #[test]
    fn every_example_is_a_value_that_can_be_given() {
        for setting in Setting::all() {
            assert_eq!(setting.check(&setting.example()), Ok(()), "{}", setting.key);
        }
        assert_eq!(setting("allow_roots").example(), "/srv/other");
        assert_eq!(setting("congestion_control").example(), "cubic");
        assert_eq!(setting("types").example(), "md=text/markdown");
        assert_eq!(setting("precompressed").example(), ".zst");
        assert_eq!(setting("hide").example(), ".git");
    }
}
