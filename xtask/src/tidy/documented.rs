//! Public items have docs. rustc's `missing_docs` covers what a crate exports. This check makes sure that the lint is
//! on everywhere, and covers the public items of private modules, which rustc does not look at.

use syn::spanned::Spanned;
use syn::{Attribute, ImplItem, Item, Visibility};

use super::Finding;
use crate::tree::{Tree, attributes};

const CURE: &str = "say what it means, its unit and range, when it fails, and its source";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    lint_is_on(tree, &mut findings);
    for source in ["core", "wire", "server", "host"]
        .iter()
        .flat_map(|room| tree.code(room))
    {
        undocumented(&source.path, &source.code.items, &mut findings);
    }
    findings
}

fn lint_is_on(tree: &Tree, findings: &mut Vec<Finding>) {
    if tree.text("Cargo.toml").is_some_and(|text| {
        !text
            .lines()
            .any(|line| line.starts_with("missing_docs = \""))
    }) {
        let cure = "add `missing_docs = \"warn\"` to [workspace.lints.rust]";
        findings.push(Finding::new(
            "Cargo.toml",
            1,
            "the lint missing_docs is off",
            cure,
        ));
    }
    for room in tree.rooms() {
        let path = format!("{room}/Cargo.toml");
        if !tree
            .text(&path)
            .is_some_and(|text| text.contains("\n[lints]\nworkspace = true"))
        {
            let what = "this crate does not take the lints of the workspace";
            findings.push(Finding::new(
                &path,
                1,
                what,
                "add `[lints]` with `workspace = true`",
            ));
        }
    }
    let allowed = concat!("allow(missing", "_docs");
    for (path, text) in tree.texts().filter(|(path, _)| path.ends_with(".rs")) {
        for (index, _) in text
            .lines()
            .enumerate()
            .filter(|(_, line)| line.contains(allowed))
        {
            findings.push(Finding::new(
                path,
                index + 1,
                "the lint missing_docs is switched off",
                CURE,
            ));
        }
    }
}

fn undocumented(path: &str, items: &[Item], findings: &mut Vec<Finding>) {
    for item in items {
        let named = match item {
            Item::Const(item) => Some((&item.vis, &item.ident)),
            Item::Enum(item) => Some((&item.vis, &item.ident)),
            Item::Fn(item) => Some((&item.vis, &item.sig.ident)),
            Item::Static(item) => Some((&item.vis, &item.ident)),
            Item::Struct(item) => Some((&item.vis, &item.ident)),
            Item::Trait(item) => Some((&item.vis, &item.ident)),
            Item::Type(item) => Some((&item.vis, &item.ident)),
            Item::Union(item) => Some((&item.vis, &item.ident)),
            _ => None,
        };
        if let Some((visibility, name)) = named {
            one(path, visibility, name, attributes(item), findings);
        }
        match item {
            Item::Mod(module) => {
                if let Some((_, items)) = &module.content {
                    undocumented(path, items, findings);
                }
            }
            Item::Impl(block) if block.trait_.is_none() && !is_of_private_type(block, items) => {
                for item in &block.items {
                    match item {
                        ImplItem::Fn(item) => {
                            one(path, &item.vis, &item.sig.ident, &item.attrs, findings)
                        }
                        ImplItem::Const(item) => {
                            one(path, &item.vis, &item.ident, &item.attrs, findings)
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
}

/// Methods of a private type are private too, even if they are marked `pub`.
fn is_of_private_type(block: &syn::ItemImpl, items: &[Item]) -> bool {
    let syn::Type::Path(path) = &*block.self_ty else {
        return false;
    };
    let named = |ident: &syn::Ident| {
        path.path.is_ident(ident)
            || path
                .path
                .segments
                .last()
                .is_some_and(|last| last.ident == *ident)
    };
    let private = |visibility: &Visibility| !matches!(visibility, Visibility::Public(_));
    items.iter().any(|item| match item {
        Item::Struct(item) => named(&item.ident) && private(&item.vis),
        Item::Enum(item) => named(&item.ident) && private(&item.vis),
        _ => false,
    })
}

fn one(
    path: &str,
    visibility: &Visibility,
    name: &syn::Ident,
    attrs: &[Attribute],
    findings: &mut Vec<Finding>,
) {
    let public = matches!(visibility, Visibility::Public(_));
    let documented = attrs
        .iter()
        .any(|attribute| attribute.path().is_ident("doc"));
    if public && !documented {
        findings.push(Finding::new(
            path,
            name.span().start().line,
            format!("`{name}` is public and has no docs"),
            CURE,
        ));
    }
}

/// The line at which a piece of code begins.
pub fn line_of(code: &impl Spanned) -> usize {
    code.span().start().line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::messages;

    #[test]
    fn public_items_without_docs_are_named_wherever_they_hide() {
        let code = "/// Yes.\npub fn a() {}\npub fn b() {}\npub(crate) fn c() {}\n/// D.\npub struct D;\nimpl D {\n    pub fn e() {}\n}\nstruct F;\nimpl F {\n    pub fn g() {}\n}\n";
        assert_eq!(
            messages(&check(&Tree::of(&[("server/src/x.rs", code)]))),
            format!(
                "server/src/x.rs:3: `b` is public and has no docs; {CURE}\n\
                 server/src/x.rs:8: `e` is public and has no docs; {CURE}\n"
            )
        );
    }

    #[test]
    fn the_lint_is_on_in_the_workspace_and_taken_by_each_crate() {
        let on = "[workspace.lints.rust]\nmissing_docs = \"warn\"\n";
        let taken = "[package]\n\n[lints]\nworkspace = true\n";
        assert_eq!(
            messages(&check(&Tree::of(&[
                ("Cargo.toml", on),
                ("core/Cargo.toml", taken)
            ]))),
            ""
        );
        assert_eq!(
            messages(&check(&Tree::of(&[
                ("Cargo.toml", ""),
                ("core/Cargo.toml", "[package]\n")
            ]))),
            "Cargo.toml:1: the lint missing_docs is off; add `missing_docs = \"warn\"` to [workspace.lints.rust]\n\
             core/Cargo.toml:1: this crate does not take the lints of the workspace; add `[lints]` with `workspace = true`\n"
        );
    }

    #[test]
    fn switching_the_lint_off_is_found_in_any_file() {
        let code = format!("#![{}]\n", concat!("allow(missing", "_docs)"));
        assert_eq!(
            messages(&check(&Tree::of(&[("lab/src/main.rs", &code)]))),
            format!("lab/src/main.rs:1: the lint missing_docs is switched off; {CURE}\n")
        );
    }
}
