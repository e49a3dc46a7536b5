//! A listing of a folder of a bucket, which comes in pages.

use ackpace_wire::listing::{self, Entry, EntryKind, Format};
use ackpace_wire::s3::{self, Page};

use crate::gateway::Address;

/// Bytes of a page as a store sends it: 1,000 keys of 1 KiB. Longer: the listing breaks off.
const PAGE_BYTES_MAX: usize = 2 << 20;
/// Pages of a listing, of 1,000 names each: more than anybody reads, and half a minute of Amazon's time. More: it breaks off, so
/// that nobody takes it for the whole, and the log says so.
const PAGES_MAX: u32 = 1_000;
/// What a listing has besides the response that passes.
pub(super) struct Pages {
    /// The target of the folder.
    pub folder: Box<[u8]>,
    pub format: Format,
    /// Which origin gives it.
    pub origin: u16,
    /// A page is asked for, and has not come.
    pub is_asked: bool,
    /// The present page, as far as it has come.
    pub body: Vec<u8>,
    /// What the next page is asked for by.
    token: Option<String>,
    pages: u32,
    pub entries: u64,
}

impl Pages {
    /// A listing of which the first page is about to be asked for.
    pub fn new(folder: Box<[u8]>, format: Format) -> Pages {
        Pages {
            folder,
            format,
            origin: 0,
            is_asked: true,
            body: Vec::new(),
            token: None,
            pages: 0,
            entries: 0,
        }
    }

    pub fn request(&self, origin: &Address) -> Result<Vec<u8>, &'static str> {
        origin.page(&self.folder, self.token.as_deref())
    }

    /// Keeps bytes of the present page; of one that is too long, one byte too many.
    pub fn take(&mut self, bytes: &[u8]) {
        let room = (PAGE_BYTES_MAX + 1).saturating_sub(self.body.len());
        self.body.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    pub fn goes_on(&self) -> bool {
        self.token.is_some()
    }

    /// Whether the next page is to be asked for, once the client has all before it.
    pub fn waits(&self) -> bool {
        self.goes_on() && !self.is_asked
    }

    /// Renders the page that came.
    pub fn render(&mut self, prefix: &str, out: &mut Vec<u8>) -> Result<(), &'static str> {
        let body = std::mem::take(&mut self.body);
        self.is_asked = false;
        if body.len() > PAGE_BYTES_MAX {
            return Err("a page of a listing with more than 2 MiB");
        }
        let page = Page::parse(&body, prefix)?;
        let format = self.format;
        if self.pages == 0 {
            listing::head(format, &s3::decode(&self.folder), out);
        }
        for item in &page.items {
            let kind = match item.is_folder {
                true => EntryKind::Directory,
                false => EntryKind::File,
            };
            let entry = Entry {
                name: item.name.as_bytes(),
                kind,
                len_bytes: item.len_bytes,
                modified_unix_s: item.modified_unix_s,
            };
            listing::entry(format, self.entries == 0, &entry, out);
            self.entries += 1;
        }
        (self.token, self.pages) = (page.next, self.pages + 1);
        if self.token.is_none() {
            listing::foot(format, None, self.entries, out);
        } else if self.pages == PAGES_MAX {
            return Err("a listing of more than 1,000 pages, which breaks off");
        }
        Ok(())
    }
}
