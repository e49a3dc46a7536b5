//! Any bytes as what an object store says, and as a target that is asked of it: [`ackpace_wire::s3`].

use ackpace_wire::s3::{self, Page};

/// Laws: names on a page have no slash, and folders come first. The code of an error is a word. A target has one spelling.
pub fn bucket(data: &[u8]) {
    for prefix in ["", "p/"] {
        if let Ok(page) = Page::parse(data, prefix) {
            assert!(page.items.iter().all(|item| !item.name.contains('/')));
            assert!(page.items.is_sorted_by_key(|item| !item.is_folder));
        }
    }
    if let Some(code) = s3::error_code(data) {
        let is_word = code.bytes().all(|byte| byte.is_ascii_alphanumeric());
        assert!(is_word && !code.is_empty());
    }
    if let Ok(target) = s3::target(data) {
        assert_eq!(s3::target(&target).ok(), Some(target));
    }
}
