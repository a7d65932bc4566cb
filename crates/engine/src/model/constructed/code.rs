//! 256 unit vectors in 16 dimensions that nearly do not see each other.
//!
//! Word (form, linear part, sign) is `±(-1)^(Q(x) + l·x) / 4` for the 16 vectors x of four bits.
//! Where the differences of the forms Q have full rank, words under different forms have the
//! product ±1/4, words under one form 0, or -1 for a word and its opposite.
//!
//! Source: Kerdock, "A class of low-rate nonlinear binary codes", 1972; at this length the
//! Nordstrom-Robinson code.

/// Components of a word.
pub(super) const LENGTH: usize = 16;

/// Largest product of two different words.
#[cfg(test)]
pub(super) const LARGEST_PRODUCT: f32 = 0.25;

/// Words whose product with a given one is [`LARGEST_PRODUCT`]: 7 other forms, 16 each.
#[cfg(test)]
pub(super) const NEIGHBOURS: usize = 112;

/// Quadratic forms: bit i stands for the i-th of [`PAIRS`].
const FORMS: [u8; 8] = [0, 12, 22, 27, 39, 41, 53, 58];

/// Products of two bits.
const PAIRS: [(u32, u32); 6] = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)];

/// Word `index`: three bits of form, four of linear part, one of sign.
pub(super) fn word(index: u8) -> [f32; LENGTH] {
    let (form, linear, sign) = (FORMS[usize::from(index >> 5)], index >> 1 & 15, index & 1);
    std::array::from_fn(|x| {
        let x = x as u8;
        let pairs = PAIRS.iter().enumerate();
        let quadratic = pairs
            .filter(|(pair, _)| form >> pair & 1 == 1)
            .map(|(_, (a, b))| x >> a & x >> b & 1)
            .sum::<u8>();
        let parity = quadratic + (linear & x).count_ones() as u8 + sign;
        if parity.is_multiple_of(2) { 0.25 } else { -0.25 }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_the_products_of_the_code() {
        for one in 0..=255 {
            let mut neighbours = 0;
            for other in 0..=255 {
                let (a, b) = (word(one), word(other));
                let product: f32 = a.iter().zip(&b).map(|(a, b)| a * b).sum();
                let expected = if one == other { 1.0..=1.0 } else { -1.0..=LARGEST_PRODUCT };
                assert!(expected.contains(&product), "{one}, {other}: {product}");
                neighbours += usize::from(one != other && product == LARGEST_PRODUCT);
            }
            assert_eq!(neighbours, NEIGHBOURS, "{one}");
        }
    }
}
