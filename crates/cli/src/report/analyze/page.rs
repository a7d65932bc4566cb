//! A page with plots that opens without a network: `page.html` with the JSON in it.

use super::super::html::embedded;
use super::{Analysis, json};

/// Everything but the data; it names no other resource, and its policy forbids any.
const PAGE: &str = include_str!("page.html");

/// Where the data goes.
const DATA: &str = "\"HEADSTART_DATA\"";

/// The whole page.
pub(crate) fn page(analysis: &Analysis) -> String {
    PAGE.replacen(DATA, &embedded(&json(analysis)), 1)
}
