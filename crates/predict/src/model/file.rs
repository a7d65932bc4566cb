//! The model file.
//!
//! ```text
//! "HSPREDCT"  version u32  length of the JSON u32   all numbers little-endian
//! JSON: everything but the weights, and the sizes of the layers
//! weights f32: layer by layer, [inputs, outputs] and then the biases
//! BLAKE3 of all that stands before, 32 bytes
//! ```
//!
//! Invariant: bytes that were not written like this are refused, and reading takes memory in
//! proportion to their number.

use serde::{Deserialize, Serialize};

use super::{ContinuationModel, ModelError};
use crate::Definition;
use crate::calibrate::Calibration;
use crate::mlp::{DenseLayer, Mlp};
use crate::prior::TurnPrior;
use crate::report::EvaluationSummary;

/// Largest file that is read: room for rows of 20,000 values.
pub const MAX_BYTES: usize = 32 << 20;

const MAGIC: &[u8; 8] = b"HSPREDCT";
const VERSION: u32 = 1;
const HASH_BYTES: usize = 32;
/// Magic, version, length.
const HEAD_BYTES: usize = 16;

/// All but the weights.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelHeader {
    definition: Definition,
    /// Inputs and outputs of each layer.
    layers: [[usize; 2]; 3],
    calibration: Calibration,
    threshold: f32,
    prior: TurnPrior,
    summary: EvaluationSummary,
    fingerprint: String,
    trained_at_s: u64,
}

pub(super) fn write(model: &ContinuationModel) -> Vec<u8> {
    let size = |layer: &DenseLayer| [layer.inputs(), layer.bias.len()];
    let header = ModelHeader {
        definition: model.definition.clone(),
        layers: [0, 1, 2].map(|at| size(&model.mlp.layers[at])),
        calibration: model.calibration,
        threshold: model.threshold,
        prior: model.prior.clone(),
        summary: model.summary,
        fingerprint: model.fingerprint.clone(),
        trained_at_s: model.trained_at_s,
    };
    let json = serde_json::to_vec(&header).expect("numbers and strings only");
    let mut bytes = Vec::new();
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&(json.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&json);
    for layer in &model.mlp.layers {
        for value in layer.weight.iter().chain(&layer.bias) {
            bytes.extend_from_slice(&value.to_le_bytes());
        }
    }
    let hash = blake3::hash(&bytes);
    bytes.extend_from_slice(hash.as_bytes());
    bytes
}

pub(super) fn read(bytes: &[u8]) -> Result<ContinuationModel, ModelError> {
    if bytes.len() > MAX_BYTES {
        return Err(ModelError::TooLarge(bytes.len()));
    }
    if !bytes.starts_with(MAGIC) {
        return Err(ModelError::Foreign);
    }
    let (body, hash) = bytes
        .split_last_chunk::<HASH_BYTES>()
        .filter(|(body, _)| body.len() >= HEAD_BYTES)
        .ok_or(ModelError::Damaged)?;
    let found = number(&body[8..]);
    // Before the checksum: another version may have another one.
    if found != VERSION {
        let known = VERSION;
        return Err(ModelError::Version { found, known });
    }
    if blake3::hash(body).as_bytes() != hash {
        return Err(ModelError::Damaged);
    }
    let json_len = number(&body[12..]) as usize;
    let rest = &body[HEAD_BYTES..];
    let (json, weights) = rest.split_at_checked(json_len).ok_or(ModelError::Damaged)?;
    let header: ModelHeader = serde_json::from_slice(json)
        .map_err(|error| ModelError::Contradiction(error.to_string()))?;
    check(&header, weights.len()).map_err(ModelError::Contradiction)?;
    Ok(assemble(header, weights))
}

/// The first four bytes.
fn number(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |four| u32::from_le_bytes(*four))
}

fn check(header: &ModelHeader, weight_bytes: usize) -> Result<(), String> {
    let [first, second, third] = header.layers;
    let parts = header.definition.parts.count();
    // Sizes first: `width` of absurd ones would overflow.
    let limit = MAX_BYTES;
    let sizes = header.layers.as_flattened();
    if sizes.iter().any(|&size| size == 0 || size > limit) || header.definition.dims > limit {
        return Err("a layer without values, or with too many".to_owned());
    }
    let width = header.definition.width();
    if first[0] != width || first[1] != second[0] || second[1] != third[0] || third[1] != 1 {
        let layers = header.layers;
        return Err(format!("layers {layers:?} for rows of {width} ({parts} texts)"));
    }
    // In 64 bits: sizes up to 2^25 were admitted above, and their product stays below 2^51.
    let numbers = |[inputs, outputs]: &[usize; 2]| (*inputs as u64 + 1) * *outputs as u64;
    let expected = 4 * header.layers.iter().map(numbers).sum::<u64>();
    // Exactly, so that a damaged size cannot shift all weights by one.
    if weight_bytes as u64 != expected {
        return Err(format!("{weight_bytes} bytes of weights, not {expected}"));
    }
    let Calibration { slope, turn_slope, offset } = header.calibration;
    let is_slope = |slope: f32| slope >= 0.0 && slope.is_finite();
    let is_probability = (0.0..=1.0).contains(&header.threshold);
    if !(is_slope(slope) && is_slope(turn_slope) && offset.is_finite() && is_probability) {
        return Err("a calibration or threshold out of range".to_owned());
    }
    if !header.prior.is_valid() {
        return Err("turn counts that cannot be".to_owned());
    }
    Ok(())
}

/// Of a header that was checked.
fn assemble(header: ModelHeader, weights: &[u8]) -> ContinuationModel {
    // The check made the length a multiple of four.
    let (words, _) = weights.as_chunks::<4>();
    let mut words = words.iter().map(|word| f32::from_le_bytes(*word));
    let layers = header.layers.map(|[inputs, outputs]| DenseLayer {
        weight: words.by_ref().take(inputs * outputs).collect(),
        bias: words.by_ref().take(outputs).collect(),
    });
    ContinuationModel {
        definition: header.definition,
        mlp: Mlp { layers },
        calibration: header.calibration,
        threshold: header.threshold,
        prior: header.prior,
        summary: header.summary,
        fingerprint: header.fingerprint,
        trained_at_s: header.trained_at_s,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::Parts;
    use crate::text::TextOptions;
    use headstart_core::Rng;

    fn model() -> ContinuationModel {
        let mut rng = Rng::new(3);
        let mut linear = |inputs: usize, outputs: usize| {
            let mut draw = |len: usize| (0..len).map(|_| rng.next_f64() as f32 - 0.5).collect();
            DenseLayer { weight: draw(inputs * outputs), bias: draw(outputs) }
        };
        let mut prior = TurnPrior::new();
        (0..100).for_each(|round| prior.observe(round % 7, round % 3 == 0));
        ContinuationModel {
            definition: Definition {
                encoder: "counting".to_owned(),
                dims: 2,
                text: TextOptions::default(),
                parts: Parts::CurrentAndJoined,
                behaviour: true,
                turn_cap: 20,
            },
            mlp: Mlp { layers: [linear(12, 8), linear(8, 4), linear(4, 1)] },
            calibration: Calibration { slope: 0.7, turn_slope: 0.2, offset: -0.3 },
            threshold: 0.4,
            prior,
            summary: EvaluationSummary { mcc: 0.25, ..EvaluationSummary::default() },
            fingerprint: "0123".to_owned(),
            trained_at_s: 1_700_000_000,
        }
    }

    /// The file with its header changed, and a checksum that fits.
    fn with_header(change: impl Fn(&mut ModelHeader)) -> Vec<u8> {
        let bytes = model().to_bytes();
        let json_len = number(&bytes[12..]) as usize;
        let json = &bytes[HEAD_BYTES..][..json_len];
        let mut header: ModelHeader = serde_json::from_slice(json).expect("just written");
        change(&mut header);
        let json = serde_json::to_vec(&header).expect("numbers and strings");
        let mut changed = bytes[..12].to_vec();
        changed.extend_from_slice(&(json.len() as u32).to_le_bytes());
        changed.extend_from_slice(&json);
        changed.extend_from_slice(&bytes[HEAD_BYTES + json_len..bytes.len() - HASH_BYTES]);
        changed.extend_from_slice(blake3::hash(&changed).as_bytes());
        changed
    }

    fn refused(bytes: &[u8]) -> String {
        ContinuationModel::from_bytes(bytes).expect_err("must be refused").to_string()
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(ContinuationModel::from_bytes(&model().to_bytes()), Ok(model()));
        assert_eq!(ContinuationModel::from_bytes(&with_header(|_| ())), Ok(model()));
    }

    #[test]
    fn any_flipped_bit_and_any_cut_is_refused() {
        let bytes = model().to_bytes();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                assert!(ContinuationModel::from_bytes(&damaged).is_err(), "byte {at}, bit {bit}");
            }
            assert!(ContinuationModel::from_bytes(&bytes[..at]).is_err(), "cut at {at}");
        }
        let mut longer = bytes;
        longer.push(0);
        assert_eq!(ContinuationModel::from_bytes(&longer), Err(ModelError::Damaged));
    }

    #[test]
    fn the_refusal_says_what_is_wrong() {
        assert_eq!(ContinuationModel::from_bytes(b""), Err(ModelError::Foreign));
        assert_eq!(ContinuationModel::from_bytes(b"{\"model\": 1}"), Err(ModelError::Foreign));
        assert_eq!(ContinuationModel::from_bytes(MAGIC), Err(ModelError::Damaged));
        let mut newer = model().to_bytes();
        newer[8] = 2;
        assert!(refused(&newer).contains("format 2, this program reads 1"));
        let large = vec![0; MAX_BYTES + 1];
        assert_eq!(ContinuationModel::from_bytes(&large), Err(ModelError::TooLarge(MAX_BYTES + 1)));
    }

    #[test]
    fn a_whole_file_that_contradicts_itself_is_refused() {
        let check = |change: fn(&mut ModelHeader), expected: &str| {
            let message = refused(&with_header(change));
            assert!(message.contains(expected), "{message}");
        };
        check(|h| h.layers[0][0] = usize::MAX, "too many");
        check(|h| h.definition.dims = usize::MAX, "too many");
        check(|h| h.layers[1] = [0, 0], "without values");
        check(|h| h.layers[1][0] = 9, "layers");
        check(|h| h.definition.dims = 3, "rows of 14");
        check(|h| h.threshold = 2.0, "threshold");
        check(|h| h.calibration.slope = -1.0, "calibration");
        check(|h| h.layers = [[12, 8], [8, 5], [5, 1]], "bytes of weights");
    }

    #[test]
    fn random_damage_behind_a_good_checksum_never_panics() {
        let bytes = model().to_bytes();
        let mut rng = Rng::new(11);
        for _ in 0..20_000 {
            let mut damaged = bytes[..bytes.len() - HASH_BYTES].to_vec();
            for _ in 0..=rng.below(4) {
                let at = 12 + rng.below(damaged.len() - 12);
                damaged[at] = rng.next_u64() as u8;
            }
            damaged.truncate(damaged.len() - rng.below(3) * rng.below(200));
            let hash = blake3::hash(&damaged);
            damaged.extend_from_slice(hash.as_bytes());
            if let Ok(model) = ContinuationModel::from_bytes(&damaged) {
                let row = vec![0.5; model.definition.width()];
                assert_eq!(model.predict_rows(&row).len(), 1);
            }
        }
    }
}
