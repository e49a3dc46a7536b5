//! The paths that options name, as the server finds them: a relative one starts at the current directory.

use std::path::Path;

use crate::options::{AdminAt, Listen, LogTarget, ServeOptions, shown_path};

/// A line for each of them, such as `root: /srv/mirror`, or `origin: http://mirror.example/pub`.
pub fn lines(options: &ServeOptions) -> Vec<String> {
    let origins = options.origins().map(|(_, url)| Path::new(url));
    let origins = origins.map(|url| format!("origin: {}", shown_path(url)));
    let mut paths: Vec<(&str, &Path)> = Vec::new();
    match options.has_origin() {
        true => paths.extend(options.tier_dir().map(|dir| ("cache_dir", dir))),
        false => paths.push(("root", &options.root)),
    }
    let allowed = options.allow_roots.iter();
    paths.extend(allowed.map(|root| ("allow_roots", root.as_path())));
    for listen in &options.listen {
        if let Listen::Unix(path) = listen {
            paths.push(("listen", path));
        }
    }
    if let LogTarget::File(path) = &options.access_log {
        paths.push(("access_log", path));
    }
    if let AdminAt::Path(path) = &options.admin {
        paths.push(("admin", path));
    }
    let nfs_key = &options.nfs_options.nfs_key;
    if nfs_key.as_os_str() != "auto" {
        paths.push(("nfs_key", nfs_key));
    }
    if options.nfs_options.is_writable() {
        paths.push(("nfs_broker", &options.nfs_options.nfs_broker));
    }
    if options.cluster.is_on() {
        paths.push(("cluster_key", &options.cluster.cluster_key));
    }
    let line = |(key, path): (&str, &Path)| {
        // It fails only for an empty path, and where the current directory is gone.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        format!("{key}: {}", shown_path(&path))
    };
    origins.chain(paths.into_iter().map(line)).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: ServeOptions,
    }

    #[test]
    fn relative_paths_start_at_the_current_directory_and_others_stay() {
        let here = std::env::current_dir().expect("it is there");
        let here = here.display();
        let mut options = Line::parse_from(["ackpace"]).options;
        assert_eq!(lines(&options), [format!("root: {here}")]);
        options.root = "site".into();
        options.allow_roots = vec!["/srv/other".into()];
        options.listen = vec![Listen::local(0), Listen::Unix("run/socket".into())];
        options.access_log = LogTarget::File("../log".into());
        let expected = [
            format!("root: {here}/site"),
            "allow_roots: /srv/other".to_owned(),
            format!("listen: {here}/run/socket"),
            format!("access_log: {here}/../log"),
        ];
        assert_eq!(lines(&options), expected);
        options.root = "http://a.example/pub".into();
        options.cache_dir = "cache".into();
        let origin = [
            "origin: http://a.example/pub".to_owned(),
            format!("cache_dir: {here}/cache"),
        ];
        assert_eq!(lines(&options)[..2], origin);
    }
}
