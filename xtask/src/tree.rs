//! The files of the checkout as values, so that each check is a function of a tree that a test can write by hand.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use syn::spanned::Spanned;
use syn::{Attribute, ImplItem, Item, Meta};

/// One file of the tree.
pub struct File {
    /// Relative to the root, with `/`.
    pub path: String,
    /// `None` if it is not UTF-8.
    pub text: Option<String>,
}

/// One Rust file, without its tests.
pub struct Source {
    pub path: String,
    /// The code without items under `cfg(test)`.
    pub code: syn::File,
    /// Whether it exists for tests only: in a folder `tests/` of a room, or declared under `cfg(test)`.
    pub test_only: bool,
}

/// All files that git tracks or would add, and the parsed Rust files among them.
pub struct Tree {
    files: BTreeMap<String, File>,
    folders: BTreeSet<String>,
    sources: Vec<Source>,
    unparsed: Vec<(String, usize, String)>,
}

impl Tree {
    /// Reads the checkout that contains this crate: files tracked by git, and new ones that it does not ignore.
    pub fn read() -> io::Result<Tree> {
        // Looked up at run time: two checkouts with one target directory may share this binary.
        let crate_dir = std::env::var_os("CARGO_MANIFEST_DIR")
            .unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
        let root = Path::new(&crate_dir)
            .parent()
            .map(PathBuf::from)
            .unwrap_or_default();
        let listed = Command::new("git")
            .args([
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ])
            .current_dir(&root)
            .output()?;
        if !listed.status.success() {
            return Err(io::Error::other(
                String::from_utf8_lossy(&listed.stderr).trim().to_string(),
            ));
        }
        let mut files = Vec::new();
        for path in String::from_utf8_lossy(&listed.stdout).split_terminator('\0') {
            let full = root.join(path);
            // Links are skipped, and so are files that are deleted but not committed yet.
            match std::fs::symlink_metadata(&full) {
                Ok(metadata) if metadata.is_file() => {}
                _ => continue,
            }
            let bytes = std::fs::read(&full)?;
            files.push(File {
                path: path.to_string(),
                text: String::from_utf8(bytes).ok(),
            });
        }
        Ok(Tree::new(files))
    }

    /// A tree written by hand in a test: path and text of each file.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Tree {
        Tree::new(
            files
                .iter()
                .map(|(path, text)| File {
                    path: (*path).to_string(),
                    text: Some((*text).to_string()),
                })
                .collect(),
        )
    }

    fn new(files: Vec<File>) -> Tree {
        let mut folders = BTreeSet::new();
        let mut sources = Vec::new();
        let mut unparsed = Vec::new();
        for file in &files {
            let mut path = file.path.as_str();
            while let Some((folder, _)) = path.rsplit_once('/') {
                folders.insert(folder.to_string());
                path = folder;
            }
            let Some(text) = file.text.as_deref().filter(|_| file.path.ends_with(".rs")) else {
                continue;
            };
            match syn::parse_file(text) {
                Ok(mut code) => {
                    let folders = file.path.split('/').skip(1); // `tests/` is a room, too
                    let test_only = folders.into_iter().any(|part| part == "tests");
                    strip_tests(&mut code.items);
                    sources.push(Source {
                        path: file.path.clone(),
                        code,
                        test_only,
                    });
                }
                Err(error) => unparsed.push((
                    file.path.clone(),
                    error.span().start().line,
                    error.to_string(),
                )),
            }
        }
        for path in files_of_test_modules(&files) {
            for source in &mut sources {
                source.test_only |= source.path == path;
            }
        }
        let files = files
            .into_iter()
            .map(|file| (file.path.clone(), file))
            .collect();
        Tree {
            files,
            folders,
            sources,
            unparsed,
        }
    }

    /// Number of files.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// All files.
    pub fn files(&self) -> impl Iterator<Item = &File> {
        self.files.values()
    }

    /// The files that are text.
    pub fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files
            .values()
            .filter_map(|file| Some((file.path.as_str(), file.text.as_deref()?)))
    }

    /// The text of this file; `None` if it is missing or not UTF-8.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.text.as_deref()
    }

    /// Whether the tree has this file.
    pub fn is_file(&self, path: &str) -> bool {
        self.files.contains_key(path)
    }

    /// Whether the tree has this folder.
    pub fn is_folder(&self, path: &str) -> bool {
        self.folders.contains(path)
    }

    /// All folders.
    pub fn folders(&self) -> impl Iterator<Item = &str> {
        self.folders.iter().map(String::as_str)
    }

    /// All Rust files, tests among them.
    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// Rust files under `<room>/src` that are part of the build, without tests.
    pub fn code<'a>(&'a self, room: &'a str) -> impl Iterator<Item = &'a Source> {
        self.sources.iter().filter(move |source| {
            !source.test_only
                && source
                    .path
                    .strip_prefix(room)
                    .is_some_and(|rest| rest.starts_with("/src/"))
        })
    }

    /// Rust files that syn could not parse: path, line, message.
    pub fn unparsed(&self) -> &[(String, usize, String)] {
        &self.unparsed
    }

    /// The folders of the workspace's crates; they may be nested.
    pub fn rooms(&self) -> impl Iterator<Item = &str> {
        self.files
            .keys()
            .filter_map(|path| path.strip_suffix("/Cargo.toml"))
    }
}

/// Whether it is compiled for tests only: `#[test]`, `#[cfg(test)]`, `#[cfg(all(test, ..))]`.
pub fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string();
            condition == "test"
                || condition.starts_with("all (test")
                || condition.starts_with("all(test")
        }
        _ => false,
    })
}

fn strip_tests(items: &mut Vec<Item>) {
    items.retain(|item| !is_test(attributes(item)));
    for item in items {
        match item {
            Item::Mod(module) => {
                if let Some((_, items)) = &mut module.content {
                    strip_tests(items);
                }
            }
            Item::Impl(block) => block.items.retain(|item| match item {
                ImplItem::Fn(function) => !is_test(&function.attrs),
                ImplItem::Const(constant) => !is_test(&constant.attrs),
                _ => true,
            }),
            _ => {}
        }
    }
}

/// The attributes of an item; empty for kinds that no test has.
pub fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Files declared by `#[cfg(test)] mod name;`.
fn files_of_test_modules(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".rs")) {
        let Some(Ok(code)) = file.text.as_deref().map(syn::parse_file) else {
            continue;
        };
        for item in &code.items {
            let Item::Mod(module) = item else { continue };
            if module.content.is_none() && is_test(&module.attrs) {
                let folder = folder_of_children(&file.path);
                found.push(format!("{folder}/{}.rs", module.ident));
                found.push(format!("{folder}/{}/mod.rs", module.ident));
            }
        }
    }
    found
}

/// The line at which a piece of code begins.
pub fn line_of(code: &impl Spanned) -> usize {
    code.span().start().line
}

/// The folder of a module's children: that of `lib.rs`, `main.rs` and `mod.rs` itself, else a folder of the module's
/// name.
pub fn folder_of_children(path: &str) -> String {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    match name {
        "lib.rs" | "main.rs" | "mod.rs" => folder.to_string(),
        _ => path.trim_end_matches(".rs").to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_no_part_of_the_code() {
        let tree = Tree::of(&[
            (
                "core/src/lib.rs",
                "#[cfg(test)] mod law;\nfn a() {}\n#[cfg(test)]\nmod tests { fn b() {} }\n",
            ),
            ("core/src/law.rs", "fn c() {}\n"),
            ("core/tests/d.rs", "fn d() {}\n"),
        ]);
        let code: Vec<_> = tree
            .code("core")
            .map(|source| (&source.path[..], source.code.items.len()))
            .collect();
        assert_eq!(code, [("core/src/lib.rs", 1)]);
    }

    #[test]
    fn folders_and_rooms_follow_from_the_files() {
        let tree = Tree::of(&[
            ("core/Cargo.toml", ""),
            ("core/src/a/b.rs", ""),
            ("lab/disk/Cargo.toml", ""),
            ("README.md", ""),
        ]);
        assert_eq!(
            tree.folders().collect::<Vec<_>>(),
            ["core", "core/src", "core/src/a", "lab", "lab/disk"]
        );
        assert_eq!(tree.rooms().collect::<Vec<_>>(), ["core", "lab/disk"]);
        assert!(tree.is_folder("core/src/a") && tree.is_file("README.md") && !tree.is_file("core"));
    }

    #[test]
    fn a_file_that_is_no_rust_is_named_with_its_line() {
        let tree = Tree::of(&[("core/src/lib.rs", "fn a() {}\nfn (\n")]);
        assert_eq!(
            (tree.unparsed()[0].0.as_str(), tree.unparsed()[0].1),
            ("core/src/lib.rs", 2)
        );
    }
}
