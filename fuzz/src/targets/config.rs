//! Any bytes as a configuration file: [`ackpace::config`].

use std::path::Path;

use ackpace::config::{Layer, effective, parse_bytes, parse_config};
use ackpace::limits::CONFIG_ERRORS_MAX;

/// Laws: an error names a place in the file, and there are never too many; a parsed configuration is printed as a file
/// that parses to the same.
pub fn config(data: &[u8]) {
    let path = Path::new("fuzz.toml");
    match parse_bytes(data, path) {
        Err(errors) => {
            assert!(!errors.is_empty() && errors.len() <= CONFIG_ERRORS_MAX + 1);
            let lines = 1 + data.iter().filter(|&&byte| byte == b'\n').count();
            for error in errors {
                assert!((1..=lines).contains(&error.line), "{error}");
                assert!((1..=data.len() + 1).contains(&error.column), "{error}");
                assert!(!error.message.is_empty());
            }
        }
        Ok(layer) => {
            let text = effective(&layer);
            let again = parse_config(&text, path).expect("what we print is a configuration");
            let values = |layer: &Layer| {
                let pairs = layer
                    .iter()
                    .map(|(key, given)| (key.clone(), given.values.clone()));
                pairs.collect::<Vec<_>>()
            };
            assert_eq!(values(&layer), values(&again), "{text}");
        }
    }
}
