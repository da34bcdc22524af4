//! JSON to its canonical bytes (RFC 8785), for fingerprints: two texts give the same bytes only if they say the same.
//!
//! It must never merge. What RFC 8785 would round, drop or leave to the parser is refused here instead: a number that
//! its double cannot carry, two members of one name, a lone surrogate. Only number format and member order are left
//! to `serde_json_canonicalizer`. The text is parsed here and not by `serde_json::Value`, because that one keeps the
//! last of two members with one name, has rounded a number before anybody sees it, and gives some member names a
//! second meaning as soon as any crate in the build turns on `arbitrary_precision` or `raw_value`.

use std::collections::BTreeMap;
use std::fmt::Display;

use serde::Serialize;
use serde::ser::{self, Serializer};

/// How many arrays and objects may be nested in one another; it bounds the stack that one payload can take.
const DEPTH_MAX: usize = 100;

/// The largest integer up to which every integer has a double of its own (2^53).
const INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

/// Why a payload has no canonical form.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum JsonError {
    #[error("found bytes that are not UTF-8 at byte {at}, expected JSON text")]
    NotUtf8 { at: usize },
    #[error("found no valid JSON at byte {at}, expected {expected}")]
    Syntax { at: usize, expected: &'static str },
    #[error("found a malformed string at byte {at}: a lone surrogate, a bare control character or an unknown escape")]
    MalformedString { at: usize },
    #[error("found more than {DEPTH_MAX} nested arrays and objects, expected fewer")]
    TooDeep,
    #[error("found a second member with the name of an earlier one at byte {at}, expected each name once per object")]
    DuplicateName { at: usize },
    #[error("found an integer beyond 2^53 at byte {at}, which RFC 8785 would round: write it as a string")]
    IntegerTooLarge { at: usize },
    #[error("found a number at byte {at} that a double would round: write it as a string, or with fewer digits")]
    NumberTooPrecise { at: usize },
    #[error("found NaN or an infinity, which JSON cannot represent")]
    NotFinite,
    #[error("the payload's own Serialize implementation failed: {0}")]
    Unserializable(String),
}

/// Returns the canonical form of a JSON text.
pub(super) fn canonicalize(text: &[u8]) -> Result<Vec<u8>, JsonError> {
    let text = std::str::from_utf8(text).map_err(|error| JsonError::NotUtf8 { at: error.valid_up_to() })?;
    let mut parser = Parser { text, at: 0 };
    let node = parser.document()?;
    serde_json_canonicalizer::to_vec(&node).map_err(|error| JsonError::Unserializable(error.to_string()))
}

/// Returns the canonical form of a value, which is the canonical form of the text that `serde_json` writes for it.
///
/// The way through the text is deliberate: it puts integers, member names and the private types of `serde_json` before
/// the same gate as a text from outside. Only NaN and the infinities have to be caught earlier: `serde_json` writes
/// them as `null`.
pub(super) fn canonicalize_value<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, JsonError> {
    value.serialize(FiniteOnly { depth: 0 })?;
    let text = serde_json::to_vec(value).map_err(|error| JsonError::Unserializable(error.to_string()))?;
    canonicalize(&text)
}

/// A parsed JSON text that has lost nothing.
enum Node {
    Null,
    Bool(bool),
    Number(f64),
    String(String),
    Array(Vec<Node>),
    Object(BTreeMap<String, Node>),
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Node::Null => serializer.serialize_unit(),
            Node::Bool(value) => serializer.serialize_bool(*value),
            Node::Number(value) => serializer.serialize_f64(*value),
            Node::String(value) => serializer.serialize_str(value),
            Node::Array(items) => serializer.collect_seq(items),
            Node::Object(members) => serializer.collect_map(members),
        }
    }
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
}

impl Parser<'_> {
    fn document(&mut self) -> Result<Node, JsonError> {
        let node = self.value(0)?;
        match self.peek_past_space() {
            None => Ok(node),
            Some(_) => Err(self.syntax("the end of the text")),
        }
    }

    fn value(&mut self, depth: usize) -> Result<Node, JsonError> {
        if depth > DEPTH_MAX {
            return Err(JsonError::TooDeep);
        }
        match self.peek_past_space() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => self.string().map(Node::String),
            Some(b'-' | b'0'..=b'9') => self.number().map(Node::Number),
            _ => self.word(),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Node, JsonError> {
        self.at += 1;
        let mut members = BTreeMap::new();
        if self.take(b'}') {
            return Ok(Node::Object(members));
        }
        loop {
            if self.peek_past_space() != Some(b'"') {
                return Err(self.syntax("a member name"));
            }
            let at = self.at;
            let name = self.string()?;
            if !self.take(b':') {
                return Err(self.syntax("a colon"));
            }
            let value = self.value(depth + 1)?;
            if members.insert(name, value).is_some() {
                return Err(JsonError::DuplicateName { at });
            }
            if self.take(b'}') {
                return Ok(Node::Object(members));
            }
            if !self.take(b',') {
                return Err(self.syntax("a comma or a closing brace"));
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Node, JsonError> {
        self.at += 1;
        let mut items = Vec::new();
        if self.take(b']') {
            return Ok(Node::Array(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            if self.take(b']') {
                return Ok(Node::Array(items));
            }
            if !self.take(b',') {
                return Err(self.syntax("a comma or a closing bracket"));
            }
        }
    }

    fn word(&mut self) -> Result<Node, JsonError> {
        for (word, node) in [("null", Node::Null), ("true", Node::Bool(true)), ("false", Node::Bool(false))] {
            if self.rest().starts_with(word) {
                self.at += word.len();
                return Ok(node);
            }
        }
        Err(self.syntax("a value"))
    }

    /// Finds where the string ends; `serde_json` then undoes the escapes and refuses what is malformed.
    fn string(&mut self) -> Result<String, JsonError> {
        let start = self.at;
        let malformed = JsonError::MalformedString { at: start };
        self.at += 1;
        loop {
            match self.peek() {
                None => return Err(self.syntax("the end of a string")),
                Some(b'"') => break,
                Some(b'\\') => self.at += 2,
                Some(_) => self.at += 1,
            }
        }
        self.at += 1;
        let token = self.text.get(start..self.at);
        token.and_then(|token| serde_json::from_str(token).ok()).ok_or(malformed)
    }

    fn number(&mut self) -> Result<f64, JsonError> {
        let start = self.at;
        self.skip(b"-");
        match self.peek() {
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        let integer_end = self.at;
        if self.skip(b".") {
            self.digits()?;
        }
        if self.skip(b"eE") {
            self.skip(b"+-");
            self.digits()?;
        }
        let literal = &self.text[start..self.at];
        // The grammar above is a subset of what `f64` parses, and it rounds correctly; too large becomes infinite.
        let value: f64 = literal.parse().map_err(|_| JsonError::Syntax { at: start, expected: "a number" })?;
        if self.at == integer_end && value.abs() > INTEGER_MAX {
            return Err(JsonError::IntegerTooLarge { at: start });
        }
        if !value.is_finite() {
            return Err(JsonError::NumberTooPrecise { at: start });
        }
        // The canonical text is the shortest that gives back the double. If it denotes another number than the
        // literal, then so does the canonical text of a neighbouring literal, and the two would share a fingerprint.
        let canonical = serde_json_canonicalizer::to_string(&value)
            .map_err(|error| JsonError::Unserializable(error.to_string()))?;
        if Decimal::of(literal) != Decimal::of(&canonical) {
            return Err(JsonError::NumberTooPrecise { at: start });
        }
        Ok(value)
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        let count = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        self.at += count;
        if count == 0 { Err(self.syntax("a digit")) } else { Ok(()) }
    }

    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn peek_past_space(&mut self) -> Option<u8> {
        while self.skip(b" \t\n\r") {}
        self.peek()
    }

    /// Consumes `byte` if it comes next, white space aside.
    fn take(&mut self, byte: u8) -> bool {
        self.peek_past_space();
        self.skip(&[byte])
    }

    /// Consumes the next byte if it is one of `bytes`.
    fn skip(&mut self, bytes: &[u8]) -> bool {
        let found = self.peek().is_some_and(|byte| bytes.contains(&byte));
        self.at += usize::from(found);
        found
    }

    fn syntax(&self, expected: &'static str) -> JsonError {
        JsonError::Syntax { at: self.at, expected }
    }
}

/// What a number literal denotes: equal exactly if the numbers are equal, however they are written.
#[derive(PartialEq, Eq)]
struct Decimal {
    negative: bool,
    /// Without zeros at either end; empty for zero.
    digits: String,
    exponent: i64,
}

impl Decimal {
    fn of(literal: &str) -> Self {
        let (mantissa, exponent) = literal.split_once(['e', 'E']).unwrap_or((literal, "0"));
        let (integer, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = format!("{}{fraction}", integer.trim_start_matches('-'));
        let significant = digits.trim_end_matches('0');
        let scale = (digits.len() - significant.len()) as i64 - fraction.len() as i64;
        let digits = significant.trim_start_matches('0').to_owned();
        if digits.is_empty() {
            return Self { negative: false, digits, exponent: 0 };
        }
        // An exponent beyond i64 belongs to no double, so what matters is only that it equals no other.
        let exponent = exponent.parse::<i64>().unwrap_or(i64::MAX).saturating_add(scale);
        Self { negative: mantissa.starts_with('-'), digits, exponent }
    }
}

/// A serializer that writes nothing and fails on the first NaN or infinity, at any depth.
#[derive(Clone, Copy)]
struct FiniteOnly {
    depth: usize,
}

impl FiniteOnly {
    fn finite(value: f64) -> Result<(), JsonError> {
        if value.is_finite() { Ok(()) } else { Err(JsonError::NotFinite) }
    }

    /// The same check one level further in, bounded because the value may be a chain of any length.
    fn deeper(self) -> Result<Self, JsonError> {
        if self.depth < DEPTH_MAX { Ok(Self { depth: self.depth + 1 }) } else { Err(JsonError::TooDeep) }
    }
}

impl ser::Error for JsonError {
    fn custom<T: Display>(message: T) -> Self {
        JsonError::Unserializable(message.to_string())
    }
}

macro_rules! always_finite {
    ($($method:ident: $type:ty),*) => {
        $(fn $method(self, _: $type) -> Result<(), JsonError> { Ok(()) })*
    };
}

impl Serializer for FiniteOnly {
    type Ok = ();
    type Error = JsonError;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    always_finite! {
        serialize_bool: bool, serialize_char: char, serialize_str: &str, serialize_bytes: &[u8],
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64, serialize_i128: i128,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64, serialize_u128: u128,
        serialize_unit_struct: &'static str
    }
    fn serialize_f32(self, value: f32) -> Result<(), JsonError> {
        Self::finite(value.into())
    }
    fn serialize_f64(self, value: f64) -> Result<(), JsonError> {
        Self::finite(value)
    }
    fn serialize_unit(self) -> Result<(), JsonError> {
        Ok(())
    }
    fn serialize_none(self) -> Result<(), JsonError> {
        Ok(())
    }
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), JsonError> {
        value.serialize(self.deeper()?)
    }
    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> Result<(), JsonError> {
        Ok(())
    }
    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), JsonError> {
        value.serialize(self.deeper()?)
    }
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), JsonError> {
        value.serialize(self.deeper()?)
    }
    fn serialize_seq(self, _: Option<usize>) -> Result<Self, JsonError> {
        self.deeper()
    }
    fn serialize_tuple(self, _: usize) -> Result<Self, JsonError> {
        self.deeper()
    }
    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, JsonError> {
        self.deeper()
    }
    fn serialize_tuple_variant(self, _: &'static str, _: u32, _: &'static str, _: usize) -> Result<Self, JsonError> {
        self.deeper()
    }
    fn serialize_map(self, _: Option<usize>) -> Result<Self, JsonError> {
        self.deeper()
    }
    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, JsonError> {
        self.deeper()
    }
    fn serialize_struct_variant(self, _: &'static str, _: u32, _: &'static str, _: usize) -> Result<Self, JsonError> {
        self.deeper()
    }
}

macro_rules! each_part_finite {
    ($($compound:ident: $($method:ident($($name:ty)?)),+;)*) => {
        $(impl ser::$compound for FiniteOnly {
            type Ok = ();
            type Error = JsonError;
            $(fn $method<T: Serialize + ?Sized>(&mut self, $(_: $name,)? part: &T) -> Result<(), JsonError> {
                part.serialize(*self)
            })+
            fn end(self) -> Result<(), JsonError> {
                Ok(())
            }
        })*
    };
}

each_part_finite! {
    SerializeSeq: serialize_element();
    SerializeTuple: serialize_element();
    SerializeTupleStruct: serialize_field();
    SerializeTupleVariant: serialize_field();
    SerializeMap: serialize_key(), serialize_value();
    SerializeStruct: serialize_field(&'static str);
    SerializeStructVariant: serialize_field(&'static str);
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn canonical(text: &str) -> Result<String, JsonError> {
        canonicalize(text.as_bytes()).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    fn refused(text: &str) -> JsonError {
        canonical(text).expect_err(text)
    }

    #[test]
    fn rfc_8785_sample_is_canonicalized_once_its_rounded_number_is_exact() {
        // Section 3.2.2's input. Its 333333333.33333329 is a number that RFC 8785 rounds, and that we refuse.
        let input = r#"{
            "numbers": [333333333.3333333, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
            "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
            "literals": [null, true, false]
        }"#;
        let expected = "{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,0.002,1e-27],\
            \"string\":\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}";
        assert_eq!(canonical(input).unwrap(), expected);
        assert_eq!(refused("333333333.33333329"), JsonError::NumberTooPrecise { at: 0 });
    }

    #[test]
    fn rfc_8785_members_are_sorted_by_utf16_code_units() {
        // Section 3.2.3's example.
        let input = r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh",
            "1":"One",
            "\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}"#;
        let expected = [
            "Carriage Return",
            "One",
            "Control",
            "Latin Small Letter O With Diaeresis",
            "Euro Sign",
            "Emoji: Grinning Face",
            "Hebrew Letter Dalet With Dagesh",
        ];
        let output = canonical(input).unwrap();
        let places: Vec<usize> = expected.iter().map(|value| output.find(value).unwrap()).collect();
        assert!(places.is_sorted(), "{output}");
    }

    #[test]
    fn rfc_8785_doubles_are_written_as_its_appendix_b_says() {
        let vectors: [(u64, &str); 22] = [
            (0x0000_0000_0000_0000, "0"),
            (0x8000_0000_0000_0000, "0"),
            (0x0000_0000_0000_0001, "5e-324"),
            (0x8000_0000_0000_0001, "-5e-324"),
            (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
            (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
            (0x4340_0000_0000_0000, "9007199254740992"),
            (0xc340_0000_0000_0000, "-9007199254740992"),
            (0x4430_0000_0000_0000, "295147905179352830000"),
            (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
            (0x44b5_2d02_c7e1_4af6, "1e+23"),
            (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
            (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
            (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
            (0x444b_1ae4_d6e2_ef50, "1e+21"),
            (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
            (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
            (0x41b3_de43_5555_5553, "333333333.3333332"),
            (0x41b3_de43_5555_5554, "333333333.33333325"),
            (0x41b3_de43_5555_5555, "333333333.3333333"),
            (0x41b3_de43_5555_5556, "333333333.3333334"),
            (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
        ];
        for (bits, expected) in vectors {
            let written = canonicalize_value(&f64::from_bits(bits)).unwrap();
            assert_eq!(String::from_utf8(written).unwrap(), expected, "{bits:016x}");
        }
    }

    #[test]
    fn every_power_of_two_survives_the_way_through_the_text() {
        // Where the shortest spelling is ambiguous, it is at a power of two: the writers have to agree on it.
        for exponent in -1074..=1023 {
            let value = 2.0_f64.powi(exponent);
            let written = canonicalize_value(&value).unwrap_or_else(|error| panic!("2^{exponent}: {error}"));
            assert_eq!(String::from_utf8(written).unwrap().parse::<f64>().unwrap(), value);
        }
    }

    #[test]
    fn one_number_has_one_form_however_it_is_written() {
        for text in ["100", "1e2", "1E+2", "100.0", "1.00e2", "10000e-2"] {
            assert_eq!(canonical(text).unwrap(), "100", "{text}");
        }
        for text in ["0", "-0", "0.0", "-0e5", "0e99999999999999999999"] {
            assert_eq!(canonical(text).unwrap(), "0", "{text}");
        }
    }

    #[test]
    fn integer_up_to_two_to_the_53_passes_and_beyond_is_refused() {
        assert_eq!(canonical("9007199254740992").unwrap(), "9007199254740992");
        assert_eq!(canonical("-9007199254740992").unwrap(), "-9007199254740992");
        assert_eq!(refused("9007199254740993"), JsonError::NumberTooPrecise { at: 0 });
        assert_eq!(refused("[-9007199254740994]"), JsonError::IntegerTooLarge { at: 1 });
        assert_eq!(refused("18014398509481984"), JsonError::IntegerTooLarge { at: 0 });
        let endless = "9".repeat(400);
        assert_eq!(refused(&endless), JsonError::IntegerTooLarge { at: 0 });
        assert!(canonicalize_value(&u64::MAX).is_err());
        assert!(canonicalize_value(&i128::MIN).is_err());
        assert!(canonicalize_value(&HashMap::from([(9_007_199_254_740_993_u64, 1)])).is_ok(), "a name is a string");
    }

    #[test]
    fn number_that_its_double_would_merge_with_a_neighbour_is_refused() {
        for text in [
            "9007199254740993.0",
            "9007199254740993e0",
            "0.1000000000000000055511151231257827",
            "0.30000000000000001",
            "1.123456789012345678",
            "90071992547409.926",
            "1e400",
            "-1e400",
            "1e-400",
            "1e99999999999999999999",
            "1e-99999999999999999999",
            "2.5e-324",
        ] {
            assert_eq!(refused(text), JsonError::NumberTooPrecise { at: 0 }, "{text}");
        }
    }

    #[test]
    fn duplicate_names_are_refused_at_any_depth_and_however_they_are_escaped() {
        assert_eq!(refused(r#"{"a":1,"a":1}"#), JsonError::DuplicateName { at: 7 });
        assert_eq!(refused(r#"[[{"b":{"a":1,"\u0061":2}}]]"#), JsonError::DuplicateName { at: 14 });
        assert!(canonical(r#"{"a":{"a":1},"b":{"a":1}}"#).is_ok());
    }

    #[test]
    fn malformed_strings_are_refused() {
        for text in [r#""\ud800""#, r#""\udc00\ud800""#, r#""\x""#, "\"a\nb\"", r#""\u12""#] {
            assert_eq!(refused(text), JsonError::MalformedString { at: 0 }, "{text}");
        }
        assert!(matches!(refused(r#""a"#), JsonError::Syntax { .. }));
        assert!(matches!(refused(r#""a\"#), JsonError::Syntax { .. }));
        assert!(matches!(refused("\"\\é"), JsonError::Syntax { .. }));
        assert_eq!(refused("\"\\é\""), JsonError::MalformedString { at: 0 });
        assert_eq!(canonicalize(b"\"\xff\""), Err(JsonError::NotUtf8 { at: 1 }));
    }

    #[test]
    fn text_that_is_not_one_json_value_is_refused() {
        for text in [
            "",
            " ",
            "nul",
            "nullx",
            "[1,]",
            "[,1]",
            "{,}",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{a:1}",
            "[1",
            "1 2",
            "01",
            "-",
            "1.",
            ".5",
            "+1",
            "1e",
            "1e+",
            "NaN",
            "Infinity",
            "'a'",
            "// x\n1",
            "\u{feff}1",
            "0x10",
            "[1}",
        ] {
            assert!(matches!(refused(text), JsonError::Syntax { .. }), "{text}");
        }
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(canonical(&nested(DEPTH_MAX)).is_ok());
        assert_eq!(refused(&nested(DEPTH_MAX + 2)), JsonError::TooDeep);
        assert_eq!(refused(&"[".repeat(1_000_000)), JsonError::TooDeep);
    }

    #[test]
    fn chain_of_values_without_end_is_refused_before_the_stack_is() {
        struct Endless;
        impl Serialize for Endless {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_some(&Endless)
            }
        }
        assert_eq!(canonicalize_value(&Endless), Err(JsonError::TooDeep));
    }

    #[test]
    fn value_with_a_number_json_lacks_is_an_error_at_any_depth() {
        #[derive(Serialize)]
        enum Price {
            Exact { amount: f64 },
            Pair(f32, f32),
            One(Option<f64>),
        }
        for price in
            [Price::Exact { amount: f64::NAN }, Price::Pair(0.0, f32::NEG_INFINITY), Price::One(Some(f64::INFINITY))]
        {
            assert_eq!(canonicalize_value(&HashMap::from([("price", vec![price])])), Err(JsonError::NotFinite));
        }
        assert_eq!(canonicalize_value(&Price::One(None)).unwrap(), br#"{"One":null}"#);
    }

    #[test]
    fn value_and_its_text_have_one_canonical_form() {
        #[derive(Serialize)]
        struct Charge<'a> {
            recipient: &'a str,
            amount: f64,
            parts: Vec<u32>,
        }
        let charge = Charge { recipient: "Zoë", amount: 12.0, parts: vec![1, 2] };
        let text = r#"{"amount":12.0,"parts":[1,2],"recipient":"Zo\u00eb"}"#;
        assert_eq!(canonicalize_value(&charge).unwrap(), canonicalize(text.as_bytes()).unwrap());
    }

    #[test]
    fn names_that_serde_json_uses_privately_mean_nothing_here() {
        for name in ["$serde_json::private::Number", "$serde_json::private::RawValue"] {
            let text = format!(r#"{{"{name}":"12"}}"#);
            assert_eq!(canonical(&text).unwrap(), text);
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-9_007_199_254_740_992_i64..=9_007_199_254_740_992).prop_map(Value::from),
            any::<f64>().prop_filter("finite", |value| value.is_finite()).prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::hash_map(any::<String>(), inner, 0..6)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn canonical_form_is_what_the_reference_writes_and_is_its_own(value in any_json()) {
            let reference = serde_json_canonicalizer::to_string(&value).unwrap();
            let compact = canonical(&value.to_string()).unwrap();
            prop_assert_eq!(&compact, &reference);
            prop_assert_eq!(canonical(&serde_json::to_string_pretty(&value).unwrap()).unwrap(), compact);
        }

        #[test]
        fn every_finite_double_has_a_canonical_form(bits in any::<u64>()) {
            let value = f64::from_bits(bits);
            let written = canonicalize_value(&value);
            if value.is_finite() {
                let text = String::from_utf8(written.unwrap()).unwrap();
                prop_assert_eq!(text.parse::<f64>().unwrap(), value);
            } else {
                prop_assert_eq!(written, Err(JsonError::NotFinite));
            }
        }

        #[test]
        fn two_decimals_share_a_form_only_if_they_are_equal(
            whole in 0..100_000_000_000_000_000_u64, fraction in "[0-9]{1,4}", other in "[0-9]{1,4}",
        ) {
            let (one, two) = (format!("{whole}.{fraction}"), format!("{whole}.{other}"));
            if let (Ok(one), Ok(two)) = (canonical(&one), canonical(&two)) {
                let same = fraction.trim_end_matches('0') == other.trim_end_matches('0');
                prop_assert_eq!(one == two, same);
            }
        }

        #[test]
        fn no_text_is_accepted_that_serde_json_refuses(text in r#"[\[\]{}",:0-9eE.+\-\\ntu a]{0,24}"#) {
            if canonical(&text).is_ok() {
                prop_assert!(serde_json::from_str::<Value>(&text).is_ok());
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = canonicalize(&bytes);
        }
    }
}
