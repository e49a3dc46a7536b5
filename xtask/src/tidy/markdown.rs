//! The parts of Markdown that the checks need: headings, links, and words in code.

/// One document, parsed line by line.
#[derive(Default)]
pub struct Document {
    /// Line and text of each heading.
    pub headings: Vec<Heading>,
    /// Line and target of each link, image, reference, `href` and `src`.
    pub links: Vec<(usize, String)>,
    /// Line and text of each `code` span.
    pub spans: Vec<(usize, String)>,
    /// Line and text of each line in a fenced block.
    pub fenced: Vec<(usize, String)>,
}

/// A heading, such as `## Text`.
pub struct Heading {
    pub line: usize,
    pub level: usize,
    pub text: String,
}

/// Parses a document.
pub fn read(text: &str) -> Document {
    let mut document = Document::default();
    let mut fence: Option<&str> = None;
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let trimmed = line.trim_start();
        let mark = ["```", "~~~"]
            .into_iter()
            .find(|mark| trimmed.starts_with(mark));
        match (fence, mark) {
            (Some(open), Some(mark)) if open == mark => fence = None,
            (Some(_), _) => document.fenced.push((number, line.to_string())),
            (None, Some(mark)) => fence = Some(mark),
            (None, None) => {
                if let Some(heading) = heading(number, line) {
                    document.headings.push(heading);
                }
                let rest = take_spans(number, line, &mut document.spans);
                take_links(number, &rest, &mut document.links);
            }
        }
    }
    document
}

/// The anchor that code hosts give a heading: lower case, words joined by `-`, other signs dropped.
pub fn anchor(heading: &str) -> String {
    let kept = heading
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase)
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

fn heading(line: usize, text: &str) -> Option<Heading> {
    let level = text.bytes().take_while(|byte| *byte == b'#').count();
    let title = text[level..].strip_prefix(' ')?;
    (1..=6).contains(&level).then(|| Heading {
        line,
        level,
        text: title.trim().to_string(),
    })
}

/// Moves code spans out of a line, so that a link in code does not count; the rest keeps the text around them.
fn take_spans(number: usize, line: &str, spans: &mut Vec<(usize, String)>) -> String {
    let mut rest = String::new();
    let mut left = line;
    while let Some(start) = left.find('`') {
        let ticks = left[start..]
            .bytes()
            .take_while(|byte| *byte == b'`')
            .count();
        let inside = &left[start + ticks..];
        let Some(len) = inside.find(&"`".repeat(ticks)) else {
            break;
        };
        rest.push_str(&left[..start]);
        spans.push((number, inside[..len].trim().to_string()));
        left = &inside[len + ticks..];
    }
    rest.push_str(left);
    rest
}

fn take_links(number: usize, line: &str, links: &mut Vec<(usize, String)>) {
    let mut found = |target: &str| {
        let target = target
            .split_whitespace()
            .next()
            .unwrap_or("")
            .trim_matches(['<', '>']);
        links.push((number, target.to_string()));
    };
    let mut left = line;
    while let Some(start) = left.find("](") {
        left = &left[start + 2..];
        let Some(end) = left.find(')') else { break };
        found(&left[..end]);
    }
    // [name]: target
    if let Some((name, target)) = line.split_once("]: ") {
        if name.starts_with('[') && !name.starts_with("[^") {
            found(target);
        }
    }
    for attribute in ["href=\"", "src=\""] {
        let mut left = line;
        while let Some(start) = left.find(attribute) {
            left = &left[start + attribute.len()..];
            let Some(end) = left.find('"') else { break };
            found(&left[..end]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_spans_and_fences_are_told_apart() {
        let document = read(
            "# A `b` title\nsee [x](a.md#b), `[no](c.md)` and ![p](d.png \"e\")\n```\n[no](f.md)\n```\n[r]: g.md\n<img src=\"h.svg\">\n",
        );
        let link = |line, target: &str| (line, target.to_string());
        assert_eq!(
            document.links,
            [
                link(2, "a.md#b"),
                link(2, "d.png"),
                link(6, "g.md"),
                link(7, "h.svg")
            ]
        );
        assert_eq!(document.spans, [link(1, "b"), link(2, "[no](c.md)")]);
        assert_eq!(document.fenced, [link(4, "[no](f.md)")]);
        assert_eq!(
            (document.headings[0].level, &document.headings[0].text[..]),
            (1, "A `b` title")
        );
    }

    #[test]
    fn anchors_are_those_of_the_forges() {
        assert_eq!(
            anchor("What it is *not* good at: `range_us`!"),
            "what-it-is-not-good-at-range_us"
        );
        assert_eq!(anchor("1 The idea, in one page"), "1-the-idea-in-one-page");
    }
}
