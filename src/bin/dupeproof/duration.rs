//! Durations as people write them: `30s`, `5m`, `1h30m`, `7d`, `2w`.

use std::time::Duration;

use jiff::{Span, SpanRelativeTo};

/// How long something is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    For(Duration),
    Forever,
}

pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || "expected a duration such as 250ms, 30s, 5m, 1h30m, 7d or 2w".to_owned();
    let span: Span = text.parse().map_err(|_| wrong())?;
    if span.get_years() != 0 || span.get_months() != 0 {
        return Err("expected a duration of fixed length; months and years differ, say it in days".to_owned());
    }
    let signed = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| wrong())?;
    Duration::try_from(signed).map_err(|_| "expected a duration that is not negative".to_owned())
}

pub(crate) fn parse_keep(text: &str) -> Result<Keep, String> {
    if text == "forever" { Ok(Keep::Forever) } else { parse(text).map(Keep::For) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, millis) in [
            ("250ms", 250),
            ("0s", 0),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("1h 30m", 5_400_000),
            ("7d", 604_800_000),
            ("2w", 1_209_600_000),
            ("100000d", 8_640_000_000_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_an_error() {
        for text in
            ["", " ", "5", "-5m", "5m ago", "1mo", "1y", "five minutes", "5 parsecs", "NaN", "1e400s", "forever"]
        {
            assert!(parse(text).is_err(), "{text:?}: {:?}", parse(text));
        }
        assert_eq!(parse_keep("forever"), Ok(Keep::Forever));
    }
}
