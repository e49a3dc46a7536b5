//! Names: of files and paths, patterns for names to hide, media types by extension.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ackpace_wire::content_type;
use ackpace_wire::hide::Hide;

use super::value::{ValueError, shown};

pub fn path(text: OsString) -> Result<PathBuf, ValueError> {
    if text.is_empty() || text.as_bytes().contains(&0) {
        let shown_path = shown(&text.to_string_lossy());
        return Err(ValueError::new(format!("{shown_path} is not a path")));
    }
    Ok(PathBuf::from(text))
}

/// What URLs of origins begin with, in upper or lower case.
const SCHEMES: [&str; 3] = ["http", "https", "s3"];

/// Whether a root is the URL of an origin and no path.
pub fn is_url(text: &str) -> bool {
    text.split_once("://")
        .is_some_and(|(scheme, _)| is_of_origins(scheme))
}

/// Whether it is the URL of a bucket.
pub fn is_bucket(text: &str) -> bool {
    text.split_once("://")
        .is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("s3"))
}

fn is_of_origins(scheme: &str) -> bool {
    let mut schemes = SCHEMES.iter();
    schemes.any(|known| scheme.eq_ignore_ascii_case(known))
}

/// A directory, a file or the URL of an origin. A text that was meant as a URL is not taken for a path.
pub fn root(text: OsString) -> Result<PathBuf, ValueError> {
    let path = path(text)?;
    match path.to_str() {
        Some(text) if is_meant_as_url(text) && !is_url(text) => {
            let shown = shown(text);
            Err(ValueError::new(format!(
                "{shown} is no URL of an origin, which begins with http://, https:// or s3://; a directory of that name is ./{shown}"
            )))
        }
        _ => Ok(path),
    }
}

fn is_meant_as_url(text: &str) -> bool {
    let is_sign = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    text.split_once(':').is_some_and(|(scheme, rest)| {
        let is_scheme = scheme.bytes().all(is_sign);
        is_scheme && (rest.starts_with("//") || is_of_origins(scheme))
    })
}

/// Whether a text begins with a host and a port, as in `mirror.example:80/pub`: a URL without its scheme.
pub fn has_port(text: &str) -> bool {
    let place = text.split('/').next().unwrap_or_default();
    place
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

/// The name of a file within a directory.
pub fn file_name(text: &str) -> Result<String, ValueError> {
    let names_a_file =
        !matches!(text, "" | "." | "..") && !text.contains(['/', '\0']) && text.len() <= 255;
    if names_a_file {
        return Ok(text.to_owned());
    }
    Err(ValueError::new(format!(
        "{} is not the name of a file, such as index.html",
        shown(text)
    )))
}

/// A pattern for names to hide: `*` and `?` are wildcards, all else is literal.
pub fn pattern(text: &str) -> Result<String, ValueError> {
    if Hide::new(&[text]).is_none() {
        return Err(ValueError::new(format!(
            "{} matches no name: write a pattern for one name of a path, such as *.tmp",
            shown(text)
        )));
    }
    Ok(text.to_owned())
}

/// A media type for the names that end in an extension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeOverride {
    /// Without its leading dot, in lower case; may have dots inside (`tar.gz`).
    pub extension: String,
    /// As sent in Content-Type, parameters included.
    pub media_type: String,
}

impl TypeOverride {
    /// Reads `EXT=TYPE`, such as `tar.gz=application/gzip`.
    pub fn parse(text: &str) -> Result<Self, ValueError> {
        let Some((extension, media_type)) = text.split_once('=') else {
            return Err(ValueError::new(format!(
                "{} is not EXT=TYPE, such as md=text/markdown",
                shown(text)
            )));
        };
        let extension = extension.strip_prefix('.').unwrap_or(extension);
        if !content_type::is_extension(extension) {
            return Err(ValueError::new(format!(
                "{} is not an extension, such as md or tar.gz",
                shown(extension)
            )));
        }
        if !content_type::is_media_type(media_type) {
            return Err(ValueError::new(format!(
                "{} is not a media type, such as text/markdown; charset=utf-8",
                shown(media_type)
            )));
        }
        Ok(Self {
            extension: extension.to_ascii_lowercase(),
            media_type: media_type.to_owned(),
        })
    }
}

impl fmt::Display for TypeOverride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.extension, self.media_type)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text<T: fmt::Debug>(result: Result<T, ValueError>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn paths_file_names_and_patterns_can_exist() {
        assert_eq!(text(path("a\0b".into())), "a\\u{0}b is not a path");
        assert_eq!(file_name("index.html"), Ok("index.html".into()));
        assert_eq!(file_name(&"x".repeat(255)), Ok("x".repeat(255)));
        let usage = "is not the name of a file, such as index.html";
        for bad in ["", ".", "..", "a/b", "/index.html"] {
            assert_eq!(text(file_name(bad)), format!("{} {usage}", shown(bad)));
        }
        assert!(file_name(&"x".repeat(256)).is_err());
        assert_eq!(pattern("*.tmp"), Ok("*.tmp".into()));
        assert_eq!(pattern(&"?".repeat(255)), Ok("?".repeat(255)));
        assert!(pattern(&"?".repeat(256)).is_err());
        let usage = "matches no name: write a pattern for one name of a path, such as *.tmp";
        assert_eq!(text(pattern("a/*")), format!("a/* {usage}"));
        assert_eq!(text(pattern("")), format!("\"\" {usage}"));
    }

    #[test]
    fn what_looks_like_a_url_is_one_or_is_refused() {
        for url in ["http://a", "HTTPS://a/b", "S3://b"] {
            assert!(is_url(url) && root(url.into()).is_ok(), "{url}");
        }
        assert!(is_bucket("S3://b") && !is_bucket("http://s3://b"));
        for odd in ["htp://a", "ftp://a/", "://a", "s3:/b", "http:a", "HTTP:/a"] {
            let told = text(root(odd.into()));
            assert!(told.contains("http://, https:// or s3://"), "{told}");
            assert!(told.ends_with(&format!("./{odd}")), "{told}");
        }
        for path in [".", "/srv", "./htp://a", "a/b://c", "a:b", "127.0.0.1:80"] {
            assert_eq!(root(path.into()), Ok(path.into()));
        }
        assert!(has_port("127.0.0.1:80") && has_port("a.example:80/pub"));
        for none in ["a", "a:b", ":80", "a/b:80", "a:70000"] {
            assert!(!has_port(none), "{none}");
        }
    }

    #[test]
    fn types_have_an_extension_and_a_media_type() {
        let parse = |text: &str| TypeOverride::parse(text).map(|t| (t.extension, t.media_type));
        let pair = |a: &str, b: &str| Ok((a.to_owned(), b.to_owned()));
        assert_eq!(parse("md=text/markdown"), pair("md", "text/markdown"));
        assert_eq!(
            parse(".TAR.gz=application/gzip"),
            pair("tar.gz", "application/gzip")
        );
        let utf8 = "text/plain; charset=utf-8; x=\"a b\"";
        assert_eq!(parse(&format!("txt={utf8}")), pair("txt", utf8));
        assert_eq!(
            text(parse("md")),
            "md is not EXT=TYPE, such as md=text/markdown"
        );
        for bad in ["", ".", "a..b", "a/b", "a.", "a\n"] {
            let name = shown(bad.strip_prefix('.').unwrap_or(bad));
            let expected = format!("{name} is not an extension, such as md or tar.gz");
            assert_eq!(text(parse(&format!("{bad}=text/plain"))), expected);
        }
        for bad in [
            "",
            "text",
            "text/",
            "/plain",
            "te xt/plain",
            "text/plain;",
            "text/plain; a",
            "text/plain\r\nX: y",
            "text/plain; a=\"\"\"",
        ] {
            let expected = format!(
                "{} is not a media type, such as text/markdown; charset=utf-8",
                shown(bad)
            );
            assert_eq!(text(parse(&format!("md={bad}"))), expected);
        }
        let longest = format!("a/{}", "b".repeat(253));
        assert!(parse(&format!("x={longest}")).is_ok());
        assert!(parse(&format!("x={longest}b")).is_err());
    }
}
