//! What seconds and tokens cost, at prices that the caller knows.

const SECONDS_PER_HOUR: f64 = 3600.0;

/// Tokens that a price is for.
const TOKENS_PER_PRICE: f64 = 1e6;

/// How computing is paid for, in any currency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Price {
    /// By time, for those who run the devices.
    DeviceHour {
        /// Price of a device for an hour.
        price: f64,
        /// Devices that a replica occupies.
        devices: f64,
    },
    /// By token, for those who pay a provider.
    MillionTokens {
        /// Price of a million prompt tokens that are computed.
        computed: f64,
        /// Price of a million prompt tokens that are found.
        found: f64,
    },
}

impl Price {
    /// What is paid for `tokens` computed in `seconds`, beyond what they would cost if found.
    #[must_use]
    pub fn lost(&self, tokens: u64, seconds: f64) -> f64 {
        match self {
            Self::DeviceHour { price, devices } => seconds / SECONDS_PER_HOUR * price * devices,
            Self::MillionTokens { computed, found } => {
                tokens as f64 / TOKENS_PER_PRICE * (computed - found)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(price: Price, tokens: u64, seconds: f64, expected: f64) {
        assert!((price.lost(tokens, seconds) - expected).abs() < 1e-12);
    }

    #[test]
    fn time_or_tokens_are_paid() {
        let by_hour = Price::DeviceHour {
            price: 3.0,
            devices: 2.0,
        };
        check(by_hour, 1, 1800.0, 3.0);
        let by_token = Price::MillionTokens {
            computed: 0.5,
            found: 0.1,
        };
        check(by_token, 2_500_000, 1.0, 1.0);
    }
}
