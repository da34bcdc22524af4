//! Text for a terminal: what others wrote may not steer it.

use dupeproof::Timestamp;

/// With control characters (line breaks too) and characters that change the direction of writing made visible.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let is_bidi = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if c.is_control() || is_bidi {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// An instant as RFC 3339 in UTC; `never` for what does not come.
pub(crate) fn instant(at: Timestamp) -> String {
    let millis = i64::try_from(at.as_unix_millis()).ok();
    match millis.and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok()) {
        Some(at) => format!("{at:.0}"),
        None => "never".to_owned(),
    }
}

/// An argument as a shell reads it back.
pub(crate) fn quoted(argument: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !argument.is_empty() && argument.chars().all(is_plain) {
        argument.to_owned()
    } else {
        format!("'{}'", escaped(argument).replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_cannot_steer_a_terminal() {
        assert_eq!(escaped("a\u{1b}[2J\nb\u{202e}c"), r"a\u{1b}[2J\nb\u{202e}c");
        assert_eq!(escaped("Zoë’s büro 日本"), "Zoë’s büro 日本");
    }

    #[test]
    fn quoted_argument_is_one_word() {
        assert_eq!(quoted("invoice-981"), "invoice-981");
        assert_eq!(quoted("Jane's order; rm"), r"'Jane'\''s order; rm'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn instants_are_utc() {
        assert_eq!(instant(Timestamp::from_unix_millis(1_790_000_000_000)), "2026-09-21T14:13:20Z");
        assert_eq!(instant(Timestamp::FOREVER), "never");
    }
}
