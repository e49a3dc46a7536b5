//! nginx: the distribution's settings for static files, one worker.

use super::{Site, bare, fill, write_config};
use ackpace_lab_base::error::Result;
use std::process::Command;

/// Path in Debian's package.
pub const PROGRAM: &str = "/usr/sbin/nginx";
const TEMPLATE: &str = include_str!("../../peers/nginx.conf");

/// The command that serves the site.
pub fn command(site: &Site, options: &[String]) -> Result<Command> {
    let path = write_config(site, "nginx.conf", &config(options))?;
    let mut command = bare(PROGRAM);
    command
        .args(["-e", "stderr", "-p"])
        .arg(site.scratch)
        .arg("-c")
        .arg(&path);
    Ok(command)
}

/// The configuration, with its placeholders for root, address and scratch unfilled.
pub fn config(options: &[String]) -> String {
    let (listen, lines): (Vec<&str>, Vec<&str>) = options
        .iter()
        .map(String::as_str)
        .partition(|option| option.starts_with("listen "));
    let listen: String = listen
        .iter()
        .map(|option| &option["listen".len()..])
        .collect();
    let lines: Vec<String> = lines.iter().map(|line| format!("{line};")).collect();
    fill(
        TEMPLATE,
        &[("LISTEN", &listen), ("LINES", &lines.join("\n    "))],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_become_lines_and_words_of_listen() {
        let config = config(&["sendfile off".into(), "listen sndbuf=64k".into()]);
        assert!(config.contains("\n    sendfile off;\n"), "{config}");
        assert!(
            config.contains("listen @IP@:@PORT@ sndbuf=64k;"),
            "{config}"
        );
    }
}
