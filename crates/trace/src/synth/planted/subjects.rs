//! Subjects of conversations: shared by all intents, so that they tell nothing of the outcome.

/// A field with things to talk about and things to make.
#[derive(Debug)]
pub(super) struct SubjectMatter {
    /// Fits "tell me about …".
    pub(super) topics: &'static [&'static str],
    /// Fits "my …": something written or made.
    pub(super) things: &'static [&'static str],
}

const fn subject(
    topics: &'static [&'static str],
    things: &'static [&'static str],
) -> SubjectMatter {
    SubjectMatter { topics, things }
}

/// Each as likely.
pub(super) const SUBJECTS: &[SubjectMatter] = &[
    subject(
        &[
            "sourdough bread",
            "risotto",
            "fermented vegetables",
            "knife skills",
            "olive oil",
            "vegan desserts",
            "slow cooking",
            "Thai curry",
        ],
        &["recipe", "menu", "shopping list", "meal plan"],
    ),
    subject(
        &[
            "train travel",
            "budget hotels",
            "hiking in the Alps",
            "street markets",
            "visa rules",
            "coastal roads",
            "packing light",
            "island ferries",
        ],
        &["itinerary", "travel guide", "packing list", "trip diary"],
    ),
    subject(
        &[
            "list comprehensions",
            "recursion",
            "web sockets",
            "unit tests",
            "regular expressions",
            "database indexes",
            "type hints",
            "message queues",
        ],
        &["script", "function", "web app", "code base"],
    ),
    subject(
        &[
            "index funds",
            "mortgage rates",
            "tax brackets",
            "compound interest",
            "inflation",
            "pension plans",
            "credit scores",
            "emergency savings",
        ],
        &["budget", "spreadsheet", "savings plan", "forecast"],
    ),
    subject(
        &[
            "the Roman roads",
            "the silk route",
            "medieval guilds",
            "the printing press",
            "ancient Egypt",
            "the steam engine",
            "Viking ships",
            "the space race",
        ],
        &["essay", "timeline", "lecture", "term paper"],
    ),
    subject(
        &[
            "raised beds",
            "tomato plants",
            "composting",
            "fruit trees",
            "drip irrigation",
            "native flowers",
            "garden pests",
            "soil acidity",
        ],
        &["planting plan", "garden layout", "watering schedule", "seed list"],
    ),
    subject(
        &[
            "interval training",
            "deadlifts",
            "marathon pacing",
            "protein intake",
            "yoga breathing",
            "sleep quality",
            "knee stability",
            "rowing technique",
        ],
        &["training plan", "workout log", "diet plan", "warm-up routine"],
    ),
    subject(
        &[
            "jazz chords",
            "drum patterns",
            "vocal harmony",
            "music theory",
            "sampling",
            "piano scales",
            "song structure",
            "film scores",
        ],
        &["song", "playlist", "arrangement", "practice schedule"],
    ),
    subject(
        &[
            "cell division",
            "gene editing",
            "coral reefs",
            "bird migration",
            "photosynthesis",
            "the immune system",
            "mushrooms",
            "bee colonies",
        ],
        &["lab report", "poster", "field guide", "study plan"],
    ),
    subject(
        &[
            "brand names",
            "email campaigns",
            "customer surveys",
            "pricing pages",
            "search ads",
            "product launches",
            "newsletters",
            "market research",
        ],
        &["landing page", "slogan", "press release", "marketing plan"],
    ),
    subject(
        &[
            "rental contracts",
            "copyright",
            "data protection",
            "consumer rights",
            "trademarks",
            "employment law",
            "small claims",
            "inheritance rules",
        ],
        &["contract", "complaint letter", "legal summary", "checklist"],
    ),
    subject(
        &[
            "fractions",
            "prime numbers",
            "probability",
            "linear equations",
            "geometry proofs",
            "statistics",
            "calculus limits",
            "graph theory",
        ],
        &["worksheet", "lesson plan", "proof", "exam"],
    ),
    subject(
        &[
            "dragons",
            "time travel",
            "haunted houses",
            "desert planets",
            "court intrigue",
            "pirates",
            "talking animals",
            "lost cities",
        ],
        &["short story", "novel", "poem", "screenplay"],
    ),
    subject(
        &[
            "job interviews",
            "remote work",
            "salary talks",
            "team conflicts",
            "career changes",
            "public speaking",
            "time management",
            "mentoring",
        ],
        &["resume", "cover letter", "presentation", "performance review"],
    ),
    subject(
        &[
            "solar panels",
            "heat pumps",
            "electric bikes",
            "home batteries",
            "window insulation",
            "smart thermostats",
            "rain barrels",
            "wood stoves",
        ],
        &["renovation plan", "cost estimate", "wiring diagram", "manual"],
    ),
    subject(
        &[
            "puppy training",
            "aquariums",
            "cat behaviour",
            "horse riding",
            "parrots",
            "dog nutrition",
            "rabbit housing",
            "bird feeders",
        ],
        &["care guide", "feeding schedule", "blog post", "adoption form"],
    ),
];

/// People that prompts speak of.
pub(super) const PEOPLE: &[&str] = &[
    "my sister",
    "my boss",
    "Anna",
    "our neighbour",
    "Omar",
    "my teacher",
    "Mei",
    "a friend",
    "my brother",
    "Lucas",
    "my colleague",
    "Priya",
    "a customer",
    "my aunt",
    "Jonas",
    "my coach",
];

/// Properties that fit topics and things.
pub(super) const QUALITIES: &[&str] = &[
    "simple",
    "modern",
    "popular",
    "difficult",
    "elegant",
    "practical",
    "surprising",
    "affordable",
    "unusual",
    "reliable",
    "traditional",
    "colourful",
];

/// Numbers that prompts name.
pub(super) const NUMBERS: &[&str] =
    &["3", "4", "5", "6", "8", "10", "12", "15", "20", "25", "30", "50"];
