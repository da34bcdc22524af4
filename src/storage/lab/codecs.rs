//! Rows: whatever is written is read back, and whatever was not written is refused.

use proptest::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

use super::records::{record, samples};
use crate::machine::record::RecordId;
use crate::storage::codec::{decode, decode_meta, encode, encode_meta};

/// Mends the sum of a row that was changed, as only a newer release (or an enemy) would.
pub(super) fn sealed(id: RecordId, mut row: Vec<u8>) -> Vec<u8> {
    let behind = xxh3_64(&row[10..]).to_le_bytes();
    let outer = [&id.0.to_le_bytes()[..], &row[..2], &behind].concat();
    row[2..10].copy_from_slice(&xxh3_64(&outer).to_le_bytes());
    row
}

proptest! {
    #[test]
    fn any_record_is_read_back_as_it_was_written(record in record()) {
        let row = encode(&record);
        prop_assert_eq!(decode(record.head.id, &row), Ok(record.clone()));
        prop_assert_eq!(sealed(record.head.id, row.clone()), row, "the sum is where the format says");
    }

    #[test]
    fn any_changed_byte_of_a_row_is_an_error(record in record(), flip in 1_u8..) {
        let mut row = encode(&record);
        for at in 0..row.len() {
            row[at] ^= flip;
            prop_assert!(decode(record.head.id, &row).is_err(), "byte {at} changed by {flip:#x}");
            row[at] ^= flip;
        }
    }

    #[test]
    fn row_that_is_cut_or_longer_or_in_anothers_place_is_an_error(record in record(), other in any::<u64>(), tail in any::<u8>()) {
        let mut row = encode(&record);
        for len in 0..row.len() {
            prop_assert!(decode(record.head.id, &row[..len]).is_err(), "cut to {len} of {}", row.len());
        }
        prop_assume!(other != record.head.id.0);
        prop_assert!(decode(RecordId(other), &row).is_err());
        row.push(tail);
        prop_assert!(decode(record.head.id, &row).is_err());
    }

    #[test]
    fn any_bytes_decode_without_a_panic(id in any::<u64>(), row in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(decode(RecordId(id), &row).is_err());
    }

    /// With a good sum nothing shields the decoder from what it is given.
    #[test]
    fn any_body_under_a_good_sum_decodes_without_a_panic(
        which in any::<proptest::sample::Index>(),
        places in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<proptest::sample::Index>(),
    ) {
        let samples = samples();
        let (_, record) = which.get(&samples);
        let mut row = encode(record);
        for (place, byte) in places {
            let at = 10 + place.index(row.len() - 10);
            row[at] = byte;
        }
        let _ = decode(record.head.id, &sealed(record.head.id, row.clone()));
        row.truncate(14 + cut.index(row.len() - 14));
        let _ = decode(record.head.id, &sealed(record.head.id, row));
    }

    #[test]
    fn any_number_of_the_store_is_read_back_and_any_changed_byte_is_an_error(values in any::<[u64; 3]>(), flip in 1_u8..) {
        let mut row = encode_meta("format", values);
        prop_assert_eq!(decode_meta("format", &row), Ok(values));
        prop_assert!(decode_meta::<3>("incarnation", &row).is_err(), "under another name");
        prop_assert!(decode_meta::<2>("format", &row).is_err() && decode_meta::<4>("format", &row).is_err(), "as fewer or more");
        for at in 0..row.len() {
            row[at] ^= flip;
            prop_assert!(decode_meta::<3>("format", &row).is_err());
            row[at] ^= flip;
        }
    }
}

#[test]
fn hostile_length_allocates_nothing_and_is_an_error() {
    let (_, record) = &samples()[0];
    for len in [u32::MAX, u32::MAX / 2, 0] {
        let mut row = encode(record);
        row[10..14].copy_from_slice(&len.to_le_bytes());
        assert!(decode(record.head.id, &sealed(record.head.id, row)).is_err());
    }
    // A string that says it is longer than the memory there is.
    let mut row = encode(record);
    row[15..24].copy_from_slice(&[253, 255, 255, 255, 255, 255, 255, 255, 255]);
    assert!(decode(record.head.id, &sealed(record.head.id, row)).is_err());
}
