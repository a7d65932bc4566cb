# -*- coding: utf-8 -*-
"""Hand-written text bank for the benchmark. Slots: {n} {p} {c} {d} {name} {id} {eur}."""

B = {}


def dom(lang, key, role, **kw):
    d = {"role": role}
    for k, v in kw.items():
        d[k] = [x.strip() for x in v.strip().split("\n")]
    B.setdefault(lang, {})[key] = d


# ------------------------------------------------------------------ English
dom(
    "en",
    "shop",
    role="You are the customer service assistant of Northwick Outfitters, an online shop for outdoor and travel gear.",
    rules="""Answer only from the policies and reference data in this prompt; if something is not covered, say so and offer to open a ticket.
Orders can be returned within {n} days of delivery as long as the item is unused and the tags are attached.
Never promise a delivery date that the order tool has not confirmed; give the window that the carrier reports.
Refunds above {eur} need approval by the {d} team before you may confirm them to the customer.
If a customer reports a defect in {p}, ask for one photo and the order number before proposing a replacement.
Vouchers cannot be combined with each other and are not paid out in cash, even if part of the order is sent back.
For parcels to islands and mountain villages around {c} a surcharge of {eur} applies, which must be named up front.
Use the formal tone of the brand: short sentences, no exclamation marks, no emoji.""",
    passages="""The {p} is made of recycled nylon with a water column of {n}000 mm. It weighs {n}0 g and comes with a repair kit. Seams can be re-taped in our workshop in {c} for {eur}.
Shipping to {c} takes two to four working days. The carrier collects parcels from the warehouse at 17:00; orders paid after that leave on the next working day.
Warranty claims for {p} are decided by the {d} team within {n} working days. The customer receives a label by mail and pays nothing for the return.
Members of the loyalty programme collect one point per euro. From {n}00 points on, a voucher over {eur} is issued automatically and stays valid for twelve months.
Sizes of {p} run small: customers between two sizes should take the larger one. The size table on the product page was corrected in spring after complaints from {c}.""",
    asks="""Hello, my {p} from order {id} arrived with a torn strap, what can I do?
Can you tell me when parcel {id} will get to {c}? It has been {n} days now.
I would like to exchange the {p} for one size larger, is that possible without paying again?
Why was I charged {eur} for shipping although the site said free delivery?
Is the {p} suitable for winter trips around {c}, and do you still have it in green?
My voucher {id} is rejected at checkout, it should still be worth {eur}.
Please cancel order {id}, I ordered the {p} twice by mistake.
Who at your {d} team can I speak to about a complaint from last month?""",
    answers="""I have checked order {id}. The {p} left our warehouse in {c} and the carrier expects to hand it over within {n} days. You will get a message when it is out for delivery.
Thank you for the details. The strap of the {p} is covered by the warranty, so I can send a replacement or refund {eur}. Which do you prefer?
The shipping fee of {eur} was charged because one article ships from a partner in {c}. I have passed the case to the {d} team with the note {id}.
An exchange is possible within {n} days. Please put the return label {id} on the parcel; the larger {p} will be reserved for you meanwhile.""",
)
dom(
    "en",
    "coding",
    role="You are a careful software engineering agent working inside a repository of the Meridian logistics platform.",
    rules="""Read a file before you edit it and keep changes as small as the task allows.
Run the test suite for the touched package after every change and report failures verbatim.
Do not add new dependencies without asking; the {d} group reviews every addition.
Public functions need type annotations and a docstring that says what is returned on failure.
Never write secrets into the repository, not even in fixtures; use the vault helper for {c} staging instead.
Commit messages start with the ticket number and use the imperative mood; at most {n} characters in the first line.
If a test is flaky, quarantine it with a link to the issue instead of adding sleeps.
Database migrations must be reversible and are reviewed by {name} before they are merged.""",
    passages="""The routing service reads depot capacities for {c} from the planner table. A nightly job rebuilds the index in about {n} minutes and writes the audit record {id}.
Module pricing/tariffs.py computes surcharges for {p}. Rounding happens once, at the end, in cents; intermediate values are Decimal with {n} digits.
The event bus delivers at least once. Consumers owned by the {d} group deduplicate by event key and keep keys for {n} days in the inbox table.
Integration tests start a local broker and load the fixture {id}. They need {n} seconds on a laptop and are skipped unless the marker is given.
Feature flags are declared in flags.toml. A flag older than {n} weeks is reported to {name}, who removes the dead branch.""",
    asks="""The job for {c} fails with KeyError 'depot_{n}', please find out why and fix it.
Add a retry with backoff to the client that calls the {d} service, at most {n} attempts.
Rename the field for {p} in the API without breaking old callers; ticket {id}.
Why does the report for {c} show {eur} more than the ledger? Check the rounding.
Write a regression test for ticket {id} before you touch the code.
{name} says that the migration {id} locks the table for {n} minutes, can we split it?
Please look at the slow endpoint for {p} and propose an index.
Clean up the unused flag that the {d} group left behind after the rollout in {c}.""",
    answers="""The error comes from the planner table: depot {n} was renamed for {c} and the lookup is case sensitive. I will normalise the key at the boundary and add a test.
I found {n} callers of the old field. I keep a deprecated alias for {p}, log its use under {id}, and switch the internal callers now.
All {n} tests in the package pass. The change touches two files; the rounding for {p} now happens once at the end, which removes the {eur} difference.
The migration can be split in three steps. I wrote them down under {id} so that {name} can review the order before anything runs in {c}.""",
)
dom(
    "en",
    "claims",
    role="You support the claims handlers of Harrow & Pike Insurance in reading, sorting and answering property claims.",
    rules="""State for every assessment which clause of the policy you rely on, by number.
Water damage is covered when it comes from a burst pipe; gradual seepage over more than {n} weeks is excluded.
Claims above {eur} are handed to the {d} desk together with a summary of no more than ten lines.
Do not give a view on liability; describe the facts and the open questions.
Ask for an invoice or a photo for each item above {eur}; for {p} a serial number is enough.
Names of third parties are written as initials in letters to the policyholder.
Fraud indicators are noted in the internal field only and never mentioned to the customer.
Deadlines are counted in working days and follow the calendar of {c}.""",
    passages="""Clause {n}.2: Household contents are insured at replacement value. For {p} an annual deduction of ten per cent applies from the third year on, unless the extension {id} was bought.
Clause {n}.7: The insurer pays hotel costs up to {eur} a night for at most sixty nights if the home in {c} cannot be lived in.
After the storm in {c} the {d} desk agreed a simplified check: claims below {eur} are paid on photos alone when the postcode is on the list.
Assessor {name} covers the area around {c}. Visits are booked {n} days ahead; urgent cases can be moved by phone.
Clause {n}.4: Theft from vehicles is covered between six and twenty-two hours only, and {p} must not have been visible from outside.""",
    asks="""Policyholder {name} reports a burst pipe in {c} and a damaged {p}. Which documents are missing?
Summarise file {id} for the {d} desk, it is about {eur} in total.
Is theft of {p} from a parked car in {c} at 23:10 covered?
Draft a letter to {name} that we need {n} more days for file {id}.
The hotel invoice is {eur} a night for {n} nights, how much do we pay?
Compare the two estimates in file {id} and tell me where they differ.
Does the extension apply to {p} bought {n} years ago?
Which deadline applies to the objection of {name} from {c}?""",
    answers="""Two documents are missing for file {id}: the plumber's report and the invoice for the {p}. The cover itself follows from clause {n}.2.
Summary: burst pipe in {c}, damage {eur}, the {p} is in its fourth year. Open question: was the extension {id} in force on the day?
Not covered on these facts: clause {n}.4 limits theft from vehicles to the daytime, and the report gives a later hour. Please confirm the time with {name}.
The estimates differ by {eur}, mainly in the drying time: {n} days in the first, half of that in the second. The rest agrees line by line.""",
)
# ------------------------------------------------------------------ German
dom(
    "de",
    "handel",
    role="Du bist der Kundenassistent von Bergblick Versand, einem Onlinehändler für Outdoor-Ausrüstung mit Sitz in Kempten.",
    rules="""Antworte ausschließlich auf Grundlage der Richtlinien in diesem Prompt; fehlt eine Angabe, biete an, ein Ticket zu eröffnen.
Ware kann innerhalb von {n} Tagen nach Zustellung zurückgegeben werden, sofern sie unbenutzt ist und die Etiketten noch befestigt sind.
Nenne niemals ein Lieferdatum, das die Sendungsabfrage nicht bestätigt hat, sondern immer nur das Zeitfenster des Zustellers.
Erstattungen über {eur} müssen vom Bereich {d} freigegeben werden, bevor du sie zusagst.
Meldet jemand einen Mangel an {p}, bitte zuerst um ein Foto und die Bestellnummer.
Gutscheine sind nicht kombinierbar und werden auch bei einer Teilrückgabe nicht bar ausgezahlt.
Für Inseln und Berggebiete rund um {c} fällt ein Zuschlag von {eur} an, der vorab genannt werden muss.
Sieze die Kundschaft, schreibe kurze Sätze und verzichte auf Ausrufezeichen und Emojis.""",
    passages="""{p}: Das Außenmaterial besteht aus recyceltem Nylon mit einer Wassersäule von {n}000 mm. Undichte Nähte klebt unsere Werkstatt in {c} für {eur} nach.
Der Versand nach {c} dauert zwei bis vier Werktage. Abholung im Lager ist um 17 Uhr; später bezahlte Bestellungen gehen am folgenden Werktag hinaus.
Über Garantiefälle bei {p} entscheidet der Bereich {d} innerhalb von {n} Werktagen. Das Rücksendeetikett kommt per E-Mail und ist kostenfrei.
Im Treueprogramm gibt es je Euro einen Punkt. Ab {n}00 Punkten wird automatisch ein Gutschein über {eur} ausgestellt, gültig zwölf Monate.
{p} fällt klein aus: Wer zwischen zwei Größen liegt, nimmt die größere. Die Größentabelle wurde nach Hinweisen aus {c} berichtigt.""",
    asks="""Guten Tag, bei meiner Bestellung {id} ist an {p} der Riemen gerissen. Was kann ich tun?
Wann kommt die Sendung {id} in {c} an? Ich warte schon seit {n} Tagen.
Ich möchte {p} eine Nummer größer umtauschen, geht das ohne erneute Bezahlung?
Warum wurden mir {eur} Versand berechnet, obwohl der Versand kostenlos sein sollte?
Taugt {p} auch für Wintertouren bei {c}, und gibt es das noch in Grün?
Mein Gutschein {id} wird an der Kasse abgelehnt, er müsste noch {eur} wert sein.
Bitte stornieren Sie {id}, ich habe {p} versehentlich doppelt bestellt.
Mit wem aus dem Bereich {d} kann ich über meine Beschwerde sprechen?""",
    answers="""Ich habe die Bestellung {id} geprüft. Die Ware hat unser Lager in {c} verlassen und wird voraussichtlich binnen {n} Tagen zugestellt. Sie erhalten dazu eine Nachricht.
Vielen Dank für die Angaben. Der Schaden an {p} fällt unter die Garantie; ich kann Ersatz senden oder {eur} erstatten. Was ist Ihnen lieber?
Die Versandkosten von {eur} entstanden, weil ein Artikel von einem Partner in {c} kommt. Ich habe den Vorgang unter {id} an den Bereich {d} gegeben.
Ein Umtausch ist innerhalb von {n} Tagen möglich. Bitte kleben Sie das Etikett {id} auf das Paket; die größere Ausführung von {p} ist solange reserviert.""",
)
dom(
    "de",
    "stadtwerke",
    role="Sie unterstützen die Sachbearbeitung der Stadtwerke Lahnau bei Fragen zu Tarifen, Abschlägen und Zählerständen.",
    rules="""Berechnen Sie Abschläge immer auf zwölf Monate und runden Sie kaufmännisch auf volle Euro.
Zählerstände, die um mehr als {n} Prozent vom Vorjahr abweichen, gehen zur Prüfung an {d}.
Bei Umzug gilt der Tag der Schlüsselübergabe als Ende der Lieferung; Belege aus {c} werden gescannt abgelegt.
Ratenpläne über {eur} dürfen nur mit Unterschrift von {name} angeboten werden.
Eine Sperre wird mindestens {n} Werktage vorher schriftlich angekündigt.
Auskünfte erteilen Sie nur der Vertragspartnerin oder Personen mit hinterlegter Vollmacht.
Nennen Sie Arbeitspreis und Grundpreis getrennt und weisen Sie die Umsatzsteuer aus.
Zu Störungen im Netz verweisen Sie auf die Leitwarte und geben keine Prognosen ab.""",
    passages="""Tarif Lahn Basis {n}: Der Grundpreis beträgt {eur} im Monat, die Preisgarantie läuft zwölf Monate. Eine Kündigung ist mit einer Frist von vier Wochen möglich.
Für Wärmepumpen im Netzgebiet {c} gilt ein gesonderter Zähler. Den Antrag prüft {d} innerhalb von {n} Werktagen, Ansprechpartnerin ist {name}.
Guthaben unter {eur} werden mit dem nächsten Abschlag verrechnet, höhere Beträge innerhalb von {n} Tagen überwiesen.
Der Zählertausch in {c} erfolgt turnusgemäß alle {n} Jahre. Der Termin wird zwei Wochen vorher per Aushang bekannt gegeben.
Bei Einspeisung aus Photovoltaik wird die Vergütung monatlich als Abschlag gezahlt; die Abrechnung erstellt {d} im Februar unter dem Zeichen {id}.""",
    asks="""Kundin {name} aus {c} meldet einen Stand von {n}4310, das scheint mir zu hoch. Wie gehe ich vor?
Bitte berechne den neuen Abschlag für Vertrag {id}, bisher {eur} im Monat.
Der Kunde zieht nach {c}, welche Unterlagen brauchen wir noch?
Formuliere ein Schreiben an {name}, dass die Rate von {eur} nicht eingegangen ist.
Gilt die Preisgarantie bei Vertrag {id} auch nach dem Zählertausch?
Warum weicht die Schlussrechnung {id} um {eur} vom Angebot ab?
Darf ich dem Sohn von {name} Auskunft geben?
Wann ist der nächste Ablesetermin in {c}?""",
    answers="""Der gemeldete Stand weicht um mehr als {n} Prozent ab. Bitte legen Sie den Vorgang {id} dem Bereich {d} zur Prüfung vor und fordern Sie ein Foto an.
Der neue Abschlag beträgt {eur} im Monat. Grundlage ist der Verbrauch der letzten zwölf Monate in {c}; die Umsatzsteuer ist enthalten.
Es fehlen noch das Übergabeprotokoll und die neue Anschrift von {name}. Danach kann Vertrag {id} zum Monatsende geschlossen werden.
Ohne hinterlegte Vollmacht dürfen wir keine Auskunft geben. Ich habe einen Vordruck unter {id} vorbereitet, den {name} unterschreiben kann.""",
)
dom(
    "de",
    "recht",
    role="Du bist Recherchehilfe der Kanzlei Ohlsen & Marten und bereitest arbeitsrechtliche Anfragen für die Anwältinnen auf.",
    rules="""Zitiere jede Norm mit Absatz und Satz und trenne Sachverhalt und Würdigung.
Fristen berechnest du zweimal und nennst den letzten Tag ausdrücklich mit Wochentag.
Gib keine Erfolgsaussichten in Prozent an, sondern benenne Stärken und Risiken.
Mandantennamen erscheinen nur als Kürzel; die Auflösung liegt bei {name}.
Anfragen mit einem Streitwert über {eur} gehen zusätzlich an {d}.
Urteile ohne Aktenzeichen werden nicht verwendet, auch wenn sie passend erscheinen.
Schreibe in ganzen Sätzen, höchstens {n} Zeilen je Absatz, ohne Aufzählungen im Gutachten.
Beim Standort {c} ist das dortige Landesrecht für Bildungsurlaub zu beachten.""",
    passages="""Vermerk {id}: Bei einer Kündigung in der Probezeit beträgt die Frist zwei Wochen. Der Betriebsrat in {c} ist vorher anzuhören, sonst ist sie unwirksam.
Nach dem Tarifvertrag für {d} erhalten Beschäftigte ab dem {n}. Jahr eine Zulage von {eur} im Monat, die bei Teilzeit anteilig gezahlt wird.
Zum Zeugnis: Die Schlussformel ist nicht einklagbar. In der Sache {id} hat das Gericht in {c} nur die Tätigkeitsbeschreibung ergänzt.
Überstunden sind darzulegen nach Tag, Uhrzeit und Veranlassung. {name} hat dafür eine Tabelle mit {n} Spalten angelegt.
Abfindungen werden meist mit einem halben Monatsgehalt je Jahr verhandelt; im Werk {c} lag der Mittelwert zuletzt bei {eur}.""",
    asks="""Kündigung zugegangen vor {n} Tagen in {c}, bis wann läuft die Klagefrist?
Fasse den Vermerk {id} für {name} in zehn Zeilen zusammen.
Steht der Mandantin aus {d} die Zulage von {eur} auch in Elternzeit zu?
Entwirf ein Schreiben an die Gegenseite in der Sache {id}.
Wie sind {n} Überstunden je Woche darzulegen?
Prüfe, ob der Betriebsrat in {c} richtig angehört wurde.
Welche Risiken hat ein Vergleich über {eur}?
Stelle die Fristen in der Akte {id} zusammen.""",
    answers="""Die Klagefrist von drei Wochen beginnt mit dem Zugang. In der Sache {id} endet sie an einem Montag; bitte im Kalender von {name} zweifach eintragen.
Die Zulage von {eur} setzt tatsächliche Arbeit voraus. Für die Elternzeit spricht der Wortlaut dagegen, die Praxis in {c} ist jedoch großzügiger.
Der Entwurf liegt unter {id}. Offen ist, ob {d} der Formulierung zum Zeugnis zustimmt; dazu habe ich eine Frage an {name} vermerkt.
Darzulegen sind Tag, Beginn, Ende und Anordnung. Für {n} Wochen liegen Aufzeichnungen vor, für die übrigen fehlt die Veranlassung.""",
)
# ------------------------------------------------------------------ French
dom(
    "fr",
    "banque",
    role="Vous êtes l'assistant des conseillers de la Banque du Val d'Orne pour les questions de comptes, de cartes et de crédits.",
    rules="""Répondez uniquement à partir des règles et des données de ce message ; sinon proposez d'ouvrir une demande interne.
Tout virement supérieur à {eur} doit être validé par le service {d} avant confirmation au client.
Ne communiquez jamais un solde par écrit à une personne qui n'est pas titulaire ou mandataire du compte.
En cas de carte perdue, faites opposition d'abord et posez les questions ensuite.
Les frais de tenue de compte sont remboursés une fois par an dans la limite de {eur}.
Une demande de crédit est étudiée en {n} jours ouvrés ; n'annoncez pas de taux avant l'accord écrit.
Pour l'agence de {c}, les rendez-vous sont pris uniquement le matin, auprès de {name}.
Employez le vouvoiement, des phrases courtes et aucun anglicisme.""",
    passages="""La carte Orne Premier couvre les achats de {p} pendant {n} jours en cas de casse ou de vol. La déclaration se fait à l'agence de {c} avec la facture d'origine.
Le prêt habitat est proposé jusqu'à vingt-cinq ans. Les frais de dossier s'élèvent à {eur} et sont offerts aux clients de moins de trente ans domiciliés à {c}.
Le service {d} rappelle que les chèques étrangers sont encaissés sous {n} semaines et que la commission minimale est de {eur}.
Un découvert autorisé peut être relevé une fois par trimestre. La décision revient à {name} au-delà de {eur}, sur présentation des trois derniers bulletins.
La clôture d'un compte est gratuite. Les prélèvements en cours sont transférés par le service {d} dans un délai de {n} jours sous la référence {id}.""",
    asks="""Bonjour, ma carte {id} a été refusée à {c} alors que le compte est approvisionné, pourquoi ?
Pouvez-vous augmenter mon découvert de {eur} pour {n} semaines ?
J'ai acheté {p} avec la carte Premier et il est cassé, suis-je couvert ?
Quand le virement {id} de {eur} arrivera-t-il ?
Je souhaite fermer mon compte et partir à {c}, que faut-il envoyer ?
Préparez une réponse à {name} sur les frais de {eur} du mois dernier.
Quel document manque au dossier de prêt {id} ?
Qui suit ma réclamation au service {d} ?""",
    answers="""La carte {id} a été bloquée après trois essais à {c}. Je peux la débloquer tout de suite ; le nouveau code arrivera sous {n} jours.
Votre achat de {p} est couvert. Merci d'apporter la facture à l'agence de {c} ; le remboursement sera au plus de {eur}.
Le virement de {eur} est parti ce matin sous la référence {id}. Le service {d} indique un délai habituel de {n} jours ouvrés.
Il manque au dossier {id} le dernier bulletin de salaire. Dès réception, {name} pourra le présenter au comité de {c}.""",
)
dom(
    "fr",
    "rh",
    role="Tu aides l'équipe des ressources humaines du groupe Verlaine Industries à répondre aux salariés sur les congés, la paie et la mutuelle.",
    rules="""Indique toujours l'article de l'accord d'entreprise sur lequel tu t'appuies.
Les congés posés moins de {n} jours à l'avance passent par le responsable du service {d}.
Ne donne aucune information sur la paie d'un autre salarié, même à son responsable.
Une avance sur salaire supérieure à {eur} demande l'accord écrit de {name}.
Les jours de télétravail sont limités à {n} par mois sur le site de {c}.
En cas d'arrêt de travail, rappelle le délai de quarante-huit heures pour envoyer le justificatif.
Propose un rendez-vous plutôt qu'un long courriel quand la question touche à la santé.
Réponds en français simple, avec des paragraphes de trois phrases au plus.""",
    passages="""Article {n} de l'accord : l'ancienneté donne droit à un jour de congé par tranche de cinq ans. Le service {d} met à jour les compteurs au premier juin.
La mutuelle rembourse {p} jusqu'à {eur} par an. La demande se fait en ligne avec la référence {id} et la facture acquittée.
Sur le site de {c}, la prime de transport s'élève à {eur} par mois. Elle est suspendue pendant les absences de plus de {n} jours.
Le compte épargne temps peut recevoir {n} jours par an. Au-delà, {name} examine les demandes deux fois par an en commission.
Un salarié muté à {c} bénéficie d'une aide au déménagement de {eur}, versée sur présentation de deux devis par le service {d}.""",
    asks="""Combien de jours de congé me reste-t-il si je prends {n} jours à {c} ?
Ma prime de transport de {eur} n'apparaît pas sur le bulletin {id}, pourquoi ?
Puis-je faire rembourser {p} par la mutuelle ?
Rédige une réponse à {name} sur son passage au service {d}.
Je déménage à {c}, ai-je droit à l'aide de {eur} ?
Quel est le délai pour envoyer l'arrêt de travail {id} ?
Peux-tu résumer le dossier {id} en cinq lignes ?
Mon responsable refuse {n} jours de télétravail, que dit l'accord ?""",
    answers="""D'après l'article {n}, il vous reste des jours d'ancienneté à poser avant la fin mai. Le compteur du service {d} sera à jour sous la référence {id}.
La prime de {eur} a été suspendue pendant votre absence à {c}. Elle sera régularisée le mois prochain, {name} en est informé.
Le remboursement de {p} est possible jusqu'à {eur}. Joignez la facture acquittée à la demande {id}, le délai est de {n} jours.
Vous avez droit à l'aide au déménagement. Il faut deux devis, à remettre au service {d} avant votre arrivée à {c}.""",
)
# ------------------------------------------------------------------ Spanish
dom(
    "es",
    "clinica",
    role="Eres el asistente de citas y trámites de la Clínica San Telmo y ayudas al personal de recepción y a los pacientes.",
    rules="""Responde solo con la información de este mensaje; si falta un dato, ofrece pasar la consulta a recepción.
Nunca des un diagnóstico ni cambies la dosis de un medicamento; deriva la pregunta a {d}.
Las citas se anulan sin coste hasta {n} horas antes; después se cobra {eur}.
Para pruebas con contraste hace falta un análisis de menos de {n} semanas.
Los resultados se entregan únicamente al paciente o a quien tenga una autorización firmada ante {name}.
En la sede de {c} no se atienden urgencias por la noche; indica el hospital más cercano.
El presupuesto de tratamientos por encima de {eur} lo firma {d}.
Trata de usted a los pacientes y escribe frases breves y amables.""",
    passages="""La revisión anual incluye analítica, electrocardiograma y entrevista. En {c} dura unas {n} horas y cuesta {eur}; el informe se recoge con el código {id}.
Para alquilar {p} se deja una fianza de {eur}. El servicio {d} lo entrega en casa en {n} días y recoge el material al terminar.
La doctora {name} pasa consulta en {c} los martes. Las primeras visitas duran cuarenta minutos y las revisiones la mitad.
El seguro cubre {n} sesiones de fisioterapia al año. A partir de ahí cada sesión cuesta {eur}, salvo autorización de {d}.
Antes de una ecografía hay que ayunar {n} horas. Si el paciente toma medicación, recepción avisa a {name} con la nota {id}.""",
    asks="""Buenos días, quiero cambiar mi cita {id} en {c} a otro día de esta semana.
¿Cuánto cuesta la revisión anual y cuántas horas dura en {c}?
Necesito {p} en casa durante {n} días, ¿cómo lo pido?
Me han cobrado {eur} por anular una cita, creo que es un error.
¿Puede recoger mi hermano los resultados {id}?
Escriba un aviso para {name} sobre el paciente de {c}.
¿Cuántas sesiones me quedan con el seguro si ya he usado {n}?
¿Quién del servicio {d} puede explicarme el presupuesto de {eur}?""",
    answers="""He localizado la cita {id}. En {c} hay hueco el jueves por la tarde con {name}; si le conviene, la cambio ahora mismo sin coste.
La revisión cuesta {eur} y dura unas {n} horas. El informe estará listo en tres días con el código {id}.
El servicio {d} puede entregar {p} en su domicilio. La fianza es de {eur} y se devuelve al recoger el material.
La anulación se hizo con menos de {n} horas de antelación, por eso se cobraron {eur}. He enviado una nota a {d} para que lo revisen.""",
)
dom(
    "es",
    "viajes",
    role="Usted ayuda a los agentes de Rutas del Sur, una agencia de viajes, a preparar reservas, cambios y reclamaciones.",
    rules="""Compruebe siempre la disponibilidad con la herramienta antes de ofrecer un precio.
Los cambios con menos de {n} días de antelación tienen un recargo de {eur}.
No reserve hoteles en {c} sin el visto bueno de {name} durante la feria.
Los grupos de más de {n} personas los gestiona {d} con contrato aparte.
Indique las condiciones de anulación en la misma frase que el precio.
Para alquilar {p} hace falta una tarjeta a nombre del viajero.
Las reclamaciones se contestan por escrito en un máximo de {n} días.
Escriba sin abreviaturas y con los importes en euros con dos decimales.""",
    passages="""El circuito Costa y Sierra sale de {c} cada sábado. Incluye {n} noches, media pensión y guía; el suplemento individual es de {eur}.
En {c} los hoteles cobran una tasa de {eur} por noche. Se paga en recepción y no aparece en la factura de la agencia.
El seguro cubre la pérdida de {p} hasta {eur} si se denuncia en veinticuatro horas. El parte se envía a {d} con la referencia {id}.
Los trenes a {c} admiten cambios hasta {n} horas antes. La diferencia de tarifa la confirma {name} por teléfono.
Las excursiones en barco se anulan con mal tiempo. La agencia devuelve el importe en {n} días o propone otra fecha bajo el código {id}.""",
    asks="""Un grupo de {n} personas quiere ir a {c} en mayo, ¿qué les propongo?
La clienta {name} ha perdido {p} en el tren, ¿lo cubre el seguro?
Cambie la reserva {id} a dos días más tarde y dígame el recargo.
¿Por qué la factura {id} tiene {eur} de más?
Redacte una respuesta a la reclamación {id} del hotel de {c}.
¿Se puede alquilar {p} en {c} sin tarjeta?
Resuma las condiciones de anulación del circuito en {n} líneas.
¿Quién en {d} lleva los contratos de grupos?""",
    answers="""Para el grupo propongo el circuito Costa y Sierra desde {c}, {n} noches con media pensión. El contrato lo prepara {d} con la referencia {id}.
El seguro cubre {p} hasta {eur} si la denuncia se hizo en veinticuatro horas. Pida a {name} una copia y envíela con el parte {id}.
El cambio de la reserva {id} tiene un recargo de {eur} porque faltan menos de {n} días. Si lo acepta, lo confirmo.
La diferencia de {eur} es la tasa del hotel de {c}. No debía estar en la factura; {d} emitirá una rectificativa.""",
)
# ------------------------------------------------------------------ Chinese
dom(
    "zh",
    "dianshang",
    role="你是“山野集”户外用品商城的客服助手，负责回答订单、退换货、配送和会员方面的问题。",
    rules="""只能依据本提示中的规则和资料作答；如果没有相关内容，请说明情况并主动提出为顾客登记工单。
商品签收后{n}天内、未使用且吊牌完好的，可以申请无理由退货，定制商品除外。
未经物流查询工具确认，不得向顾客承诺具体的送达日期，只能告知承运方给出的时间范围。
退款金额超过{eur}的，必须先由{d}审核通过，之后才能答复顾客。
顾客反映{p}有质量问题时，请先索取一张照片和订单编号，再给出换货方案。
优惠券不能叠加使用，部分退货时也不折算成现金返还。
寄往{c}周边海岛和山区的包裹需要加收{eur}，必须在下单之前告知。
语气礼貌、句子简短，不使用感叹号和表情符号。""",
    passages="""{p}采用再生尼龙面料，防水指数为{n}000毫米。如果接缝处出现渗水，可以寄到{c}的维修中心重新压胶，费用为{eur}。
发往{c}的包裹一般需要两到四个工作日。仓库每天下午五点交接给承运方，五点以后付款的订单在下一个工作日发出。
{p}的保修申请由{d}在{n}个工作日内审核。退货面单通过短信发送，顾客不需要承担运费。
会员每消费一元积一分，满{n}00分后系统自动发放一张{eur}的优惠券，有效期为十二个月。
{p}的尺码偏小，介于两个尺码之间的顾客建议选大一码。根据{c}顾客的反馈，尺码表已经更正。""",
    asks="""你好，我的订单{id}里的{p}背带断了，请问应该怎么处理？
包裹{id}什么时候能送到{c}？我已经等了{n}天了。
我想把{p}换成大一码的，需要重新付款吗？
页面上写着包邮，为什么还收了我{eur}的运费？
{p}适合冬天在{c}一带使用吗？还有绿色的吗？
我的优惠券{id}结账时提示无效，应该还有{eur}没有用。
请取消订单{id}，{p}我不小心下单了两次。
我上个月的投诉应该找{d}的哪一位同事？""",
    answers="""已经为您查询到订单{id}，商品已从{c}的仓库发出，承运方预计{n}天之内送达，派送时会有短信通知您。
感谢您提供的信息。{p}的背带在保修范围之内，我可以为您补发一件，或者退款{eur}，您希望选择哪一种？
这笔{eur}的运费是因为其中一件商品由{c}的合作商家发货。我已经把情况记录为{id}并转给{d}。
{n}天之内可以换货。请把退货面单{id}贴在包裹外面，大一码的{p}会先为您保留。""",
)
dom(
    "zh",
    "biancheng",
    role="你是一名严谨的软件工程助手，在“云帆”物流平台的代码仓库里工作，负责排查问题、修改代码和补充测试。",
    rules="""修改文件之前必须先阅读该文件，改动范围应当尽可能小。
每次改动之后都要运行相关模块的测试，并原样报告失败信息。
没有得到{d}同意之前，不得引入新的第三方依赖。
对外接口必须带有类型标注和文档字符串，并写明失败时的返回值。
任何密钥都不得写入仓库，测试数据里也不可以；{c}预发环境请使用密钥管理工具。
提交说明以工单编号开头，首行不超过{n}个字，使用祈使语气。
遇到不稳定的测试，应当先隔离并附上问题链接，不要通过增加等待时间来掩盖。
数据库变更必须能够回滚，并由{name}审核之后才能合并。""",
    passages="""路由服务从计划表读取{c}各仓库的容量。每天夜里的任务用大约{n}分钟重建索引，并写入审计记录{id}。
定价模块负责计算{p}的附加费。金额只在最后一步按分取整，中间结果保留{n}位小数。
消息总线保证至少投递一次。{d}维护的消费者按照事件键去重，去重记录保留{n}天。
集成测试会启动本地消息代理并加载数据集{id}，在笔记本上大约需要{n}秒，默认情况下会跳过。
功能开关在配置文件中声明。超过{n}周仍未清理的开关会通知{name}，由其删除失效的分支。""",
    asks="""{c}的任务报错说找不到仓库{n}，请查明原因并修复。
给调用{d}服务的客户端加上带退避的重试，最多{n}次。
请把接口里{p}的字段改名，但不能影响旧的调用方，工单{id}。
为什么{c}的报表比总账多出{eur}？请检查取整的逻辑。
动代码之前，先给工单{id}写一个回归测试。
{name}说变更{id}会锁表{n}分钟，能不能拆开执行？
请看一下{p}那个很慢的接口，并给出索引方案。
把{d}在{c}上线之后遗留的开关清理掉。""",
    answers="""错误来自计划表：{c}的仓库{n}改过名字，而查询时区分大小写。我会在入口处统一格式，并补充一个测试。
旧字段一共有{n}处调用。我为{p}保留了兼容的别名，使用情况记录在{id}，内部调用方已经切换。
该模块的{n}个测试全部通过。改动涉及两个文件，{p}的取整现在只在最后进行一次，{eur}的差额已经消失。
这次变更可以拆成三步执行。步骤写在{id}里，等{name}确认顺序之后再在{c}运行。""",
)

SLOT = {
    "en": dict(
        p="Ridge 40 backpack|Fjell down jacket|Lumen headlamp|Tarn two-person tent|Brae hiking boots|Corrie rain shell|Skye sleeping bag|Moor gas stove|Glen trekking poles|Firth dry bag".split(
            "|"
        ),
        c="Leeds|Portland|Galway|Bristol|Denver|Inverness|Auckland|Halifax|Norwich|Boise".split(
            "|"
        ),
        d="Quality|Fulfilment|Platform|Field Audit|Retail Care|Billing|Returns|Data Services".split(
            "|"
        ),
        name="Priya Raman|Tom Hollis|Grace Adeyemi|Luis Ortega|Megan Ford|Owen Clarke|Hannah Weiss|Samir Patel|Ruth Lindqvist|Joel Carter".split(
            "|"
        ),
        cur="{} USD",
    ),
    "de": dict(
        p="Trekkingrucksack Watzmann|Daunenjacke Allgäu|Stirnlampe Lux|Zwei-Personen-Zelt Eibsee|Wanderstiefel Zugspitz|Regenjacke Isar|Schlafsack Karwendel|Gaskocher Föhn|Faltkajak Donau|Kletterseil Gimpel".split(
            "|"
        ),
        c="Kempten|Leipzig|Bregenz|Hannover|Görlitz|Flensburg|Innsbruck|Wetzlar|Passau|Münster".split(
            "|"
        ),
        d="Qualität|Logistik|Innenrevision|Kundenbindung|Abrechnung|Netzbetrieb|Grundsatzfragen|Rücksendungen".split(
            "|"
        ),
        name="Katrin Özdemir|Jürgen Weiß|Anke Brandl|Björn Lüders|Miriam Köhler|Tobias Strauß|Heike Jänsch|Paul Grünwald|Svenja Rößler|Emre Yıldız".split(
            "|"
        ),
        cur="{} Euro",
    ),
    "fr": dict(
        p="l'ordinateur portable Azur|le vélo électrique Garonne|la paire de lunettes Lys|l'appareil auditif Écho|le téléphone Brume|le fauteuil ergonomique Cèdre|la montre Étoile|le casque Forêt|la semelle orthopédique Pas|la tablette Île".split(
            "|"
        ),
        c="Alençon|Nîmes|Besançon|Saint-Étienne|Orléans|Angoulême|Périgueux|Béziers|Vannes|Châteauroux".split(
            "|"
        ),
        d="Conformité|Contentieux|Trésorerie|Relation clientèle|Paie|Mobilité|Prévoyance|Contrôle interne".split(
            "|"
        ),
        name="Hélène Marchand|Éric Lefèvre|Zoé Garçon|François Bérard|Inès Chevalier|Rémi Gauthier|Solène Dubœuf|Théo Lacroix|Agnès Noël|Mathieu Périer".split(
            "|"
        ),
        cur="{} euros",
    ),
    "es": dict(
        p="la cámara Duero|una silla de ruedas plegable|el bastón Encina|la bicicleta Sierra|un tensiómetro|la maleta Güell|unas muletas de aluminio|el coche Almería|el móvil Niebla|un nebulizador".split(
            "|"
        ),
        c="Cádiz|León|Málaga|A Coruña|Jaén|Castellón|Mérida|Gijón|Almería|Córdoba".split("|"),
        d="Administración|Atención al Paciente|Facturación|Calidad|Grupos|Contratación|Dirección Médica|Siniestros".split(
            "|"
        ),
        name="Begoña Núñez|Íñigo Salazar|Lucía Peña|Andrés Cañete|Rocío Ibáñez|Joaquín Muñiz|Nerea Güemes|Tomás Arévalo|Sofía Bermúdez|Raúl Ordóñez".split(
            "|"
        ),
        cur="{} euros",
    ),
    "zh": dict(
        p="“青峰”登山包|“寒枝”羽绒服|“萤火”头灯|“溪谷”双人帐篷|“远岭”徒步靴|“听雨”冲锋衣|“星夜”睡袋|“微焰”气炉|“竹杖”登山杖|“浮舟”防水袋".split(
            "|"
        ),
        c="昆明|成都|青岛|厦门|兰州|哈尔滨|桂林|拉萨|宁波|西宁".split("|"),
        d="质检组|物流组|平台组|审核组|会员组|财务组|售后组|数据组".split("|"),
        name="陈思远|李雨桐|王建国|赵敏|孙浩然|周婷|吴志强|郑晓燕|何俊杰|林嘉怡".split("|"),
        cur="{}元",
    ),
}
# section titles, generic sentences
G = {
    "en": dict(
        titles=[
            "Role",
            "Guidelines",
            "Product reference",
            "Opening hours",
            "Escalation contacts",
            "Glossary",
            "Answer format",
            "Data protection",
        ],
        fmt="Begin with the answer itself, then give the reason in one sentence.\nUse numbered steps only when the order matters.\nQuote reference numbers exactly as they appear in the data.\nIf two rules contradict each other, follow the stricter one and mention it.\nEnd with the next step and who takes it.",
        priv="Do not repeat card numbers, passwords or health details, even if the user typed them.\nRefer to other people by role only unless the user named them first.\nLogs are kept for ninety days; do not promise earlier deletion.",
        follow="Thanks. And what happens if that takes longer than {n} days?|Can you put that in a short message to {name}?|One more thing: does the same apply in {c}?|I do not quite follow, where does the figure of {eur} come from?|Good, please note it under {id} and go on.|Could you check this again with {d}?|And for the {p}?",
        acks="Yes, the same rule applies in {c}; only the contact changes, there it is {name}.|I have noted it under {id}. The next step is with {d}, normally within {n} days.|The figure of {eur} is the sum of two items: the base amount and the surcharge for {c}.|If it takes longer than {n} days, please refer to {id}; then {d} will give it priority.|Short message: dear {name}, the matter {id} is settled as discussed, {eur} will be booked this week.",
        hours="Mon to Fri {a}:00 to {b}:00, Sat 9:00 to 13:00",
        think="The user wants to know about {id}. I should check {c} first, then compare with the rule on {n} days before I answer.",
        item="Item|Place|Contact|Code|Amount",
        classify="Classify the following message into one of: refund, delivery, product, account, other. Answer with the label only.\n\nMessage:\n",
        ctx="Context documents",
        q="Question",
        date="Today's date",
    ),
    "de": dict(
        titles=[
            "Aufgabe",
            "Richtlinien",
            "Artikelübersicht",
            "Servicezeiten",
            "Ansprechpartner",
            "Begriffe",
            "Form der Antwort",
            "Datenschutz",
        ],
        fmt="Beginne mit der Antwort selbst und begründe sie in einem Satz.\nVerwende nummerierte Schritte nur, wenn die Reihenfolge wichtig ist.\nGib Aktenzeichen und Nummern genau so wieder, wie sie in den Daten stehen.\nWidersprechen sich zwei Regeln, gilt die strengere, und du weist darauf hin.\nSchließe mit dem nächsten Schritt und der zuständigen Stelle.",
        priv="Wiederhole keine Kartennummern, Passwörter oder Gesundheitsangaben, auch wenn sie genannt wurden.\nAndere Personen bezeichnest du nur nach ihrer Rolle.\nProtokolle werden neunzig Tage aufbewahrt; eine frühere Löschung wird nicht zugesagt.",
        follow="Danke. Und was passiert, wenn es länger als {n} Tage dauert?|Können Sie das als kurze Nachricht an {name} formulieren?|Noch eine Frage: Gilt das auch in {c}?|Das verstehe ich nicht ganz, woher kommen die {eur}?|Gut, bitte unter {id} vermerken und weitermachen.|Könnten Sie das noch einmal mit {d} abklären?|Und wie ist es bei {p}?",
        acks="Ja, in {c} gilt dieselbe Regel; nur die Ansprechperson ist dort {name}.|Ich habe es unter {id} vermerkt. Den nächsten Schritt übernimmt {d}, in der Regel binnen {n} Tagen.|Der Betrag von {eur} setzt sich aus dem Grundbetrag und dem Zuschlag für {c} zusammen.|Dauert es länger als {n} Tage, nennen Sie bitte {id}; dann zieht {d} den Vorgang vor.|Kurznachricht: Guten Tag {name}, der Vorgang {id} ist wie besprochen erledigt, {eur} werden diese Woche gebucht.",
        hours="Mo bis Fr {a}:00 bis {b}:00 Uhr, Sa 9:00 bis 13:00 Uhr",
        think="Es geht um {id}. Zuerst prüfe ich {c}, dann vergleiche ich mit der Regel über {n} Tage, bevor ich antworte.",
        item="Posten|Ort|Kontakt|Kennung|Betrag",
        classify="Ordne die folgende Nachricht einer Klasse zu: Erstattung, Lieferung, Produkt, Konto, Sonstiges. Antworte nur mit der Klasse.\n\nNachricht:\n",
        ctx="Fundstellen",
        q="Frage",
        date="Heutiges Datum",
    ),
    "fr": dict(
        titles=[
            "Mission",
            "Règles",
            "Liste de référence",
            "Horaires",
            "Contacts",
            "Lexique",
            "Forme de la réponse",
            "Protection des données",
        ],
        fmt="Commencez par la réponse, puis donnez la raison en une phrase.\nN'utilisez des étapes numérotées que si l'ordre compte.\nRecopiez les références exactement telles qu'elles figurent dans les données.\nSi deux règles se contredisent, appliquez la plus stricte et signalez-le.\nTerminez par l'étape suivante et la personne qui s'en charge.",
        priv="Ne répétez ni numéro de carte, ni mot de passe, ni donnée de santé, même si la personne les a écrits.\nLes tiers sont désignés par leur fonction seulement.\nLes journaux sont conservés quatre-vingt-dix jours ; ne promettez pas d'effacement plus rapide.",
        follow="Merci. Et si cela prend plus de {n} jours ?|Pouvez-vous en faire un court message pour {name} ?|Encore une question : est-ce pareil à {c} ?|Je ne comprends pas bien, d'où viennent les {eur} ?|Très bien, notez-le sous {id} et continuez.|Pourriez-vous vérifier avec le service {d} ?|Et pour {p} ?",
        acks="Oui, la même règle vaut à {c} ; seul le contact change, c'est {name}.|C'est noté sous {id}. L'étape suivante revient au service {d}, en général sous {n} jours.|La somme de {eur} comprend le montant de base et le supplément pour {c}.|Au-delà de {n} jours, rappelez la référence {id} ; le service {d} traitera le dossier en priorité.|Message : bonjour {name}, le dossier {id} est réglé comme convenu, {eur} seront passés cette semaine.",
        hours="du lundi au vendredi de {a} h à {b} h, le samedi de 9 h à 13 h",
        think="La demande porte sur {id}. Je vérifie d'abord {c}, puis la règle des {n} jours avant de répondre.",
        item="Article|Ville|Contact|Code|Montant",
        classify="Classez le message suivant : remboursement, livraison, produit, compte, autre. Répondez par le seul nom de la classe.\n\nMessage :\n",
        ctx="Extraits",
        q="Question",
        date="Date du jour",
    ),
    "es": dict(
        titles=[
            "Función",
            "Normas",
            "Lista de referencia",
            "Horarios",
            "Contactos",
            "Glosario",
            "Forma de la respuesta",
            "Protección de datos",
        ],
        fmt="Empiece por la respuesta y dé la razón en una frase.\nUse pasos numerados solo cuando el orden importe.\nCopie los códigos exactamente como aparecen en los datos.\nSi dos normas se contradicen, aplique la más estricta y dígalo.\nTermine con el siguiente paso y la persona que lo hace.",
        priv="No repita números de tarjeta, contraseñas ni datos de salud, aunque la persona los haya escrito.\nA terceras personas se las nombra solo por su función.\nLos registros se guardan noventa días; no prometa borrarlos antes.",
        follow="Gracias. ¿Y si tarda más de {n} días?|¿Puede escribirlo como un mensaje breve para {name}?|Otra pregunta: ¿vale lo mismo en {c}?|No lo entiendo del todo, ¿de dónde salen los {eur}?|Bien, anótelo en {id} y siga.|¿Podría comprobarlo otra vez con {d}?|¿Y en el caso de {p}?",
        acks="Sí, en {c} vale la misma norma; solo cambia el contacto, que es {name}.|Lo he anotado en {id}. El siguiente paso es de {d}, normalmente en {n} días.|Los {eur} son la suma del importe base y el suplemento de {c}.|Si tarda más de {n} días, indique el código {id}; entonces {d} le dará prioridad.|Mensaje: hola, {name}, el asunto {id} queda resuelto como hablamos, se abonarán {eur} esta semana.",
        hours="de lunes a viernes de {a}:00 a {b}:00, sábados de 9:00 a 13:00",
        think="La consulta trata de {id}. Primero miro {c} y después comparo con la norma de los {n} días antes de contestar.",
        item="Artículo|Lugar|Contacto|Código|Importe",
        classify="Clasifique el siguiente mensaje: devolución, entrega, producto, cuenta, otro. Conteste solo con la clase.\n\nMensaje:\n",
        ctx="Documentos",
        q="Pregunta",
        date="Fecha de hoy",
    ),
    "zh": dict(
        titles=[
            "角色",
            "工作准则",
            "资料清单",
            "服务时间",
            "联系人",
            "术语",
            "回答格式",
            "数据保护",
        ],
        fmt="先给出结论，再用一句话说明理由。\n只有在顺序重要的时候才使用编号步骤。\n编号和单号必须与资料中的写法完全一致。\n两条规则互相矛盾时，按照更严格的一条执行，并加以说明。\n结尾写明下一步由谁来做。",
        priv="不要复述银行卡号、密码或健康信息，即使用户已经写出来。\n提到第三方时只写身份，不写姓名。\n日志保存九十天，不要承诺提前删除。",
        follow="谢谢。如果超过{n}天还没有结果怎么办？|可以写成一条简短的消息发给{name}吗？|还有一个问题，{c}也是同样的规定吗？|我不太明白，{eur}是怎么算出来的？|好的，请记录在{id}，然后继续。|能不能再和{d}确认一次？|那么{p}呢？",
        acks="是的，{c}适用同样的规定，只是联系人换成{name}。|已经记录在{id}。下一步由{d}负责，一般在{n}天之内完成。|{eur}由基础金额和{c}的附加费两部分组成。|如果超过{n}天，请提供编号{id}，{d}会优先处理。|消息内容：{name}您好，{id}已按商定的办法处理，{eur}将在本周入账。",
        hours="周一至周五{a}:00至{b}:00，周六9:00至13:00",
        think="用户问的是{id}。我应当先查{c}的情况，再对照{n}天的规定，然后作答。",
        item="名称|地点|联系人|编号|金额",
        classify="请把下面的消息归入一类：退款、配送、商品、账户、其他。只回答类别名称。\n\n消息：\n",
        ctx="参考资料",
        q="问题",
        date="今天的日期",
    ),
}
TOOLS = {  # name -> (properties, descriptions per language)
    "lookup_order": (
        ["order_id", "include_history"],
        dict(
            en="Look up an order by its number and return status, items and carrier events.",
            de="Sucht eine Bestellung anhand ihrer Nummer und liefert Status, Positionen und Sendungsereignisse.",
            fr="Recherche une commande par son numéro et renvoie l'état, les lignes et le suivi.",
            es="Busca un pedido por su número y devuelve estado, líneas y envío.",
            zh="按照编号查询订单，返回状态、明细和物流记录。",
        ),
    ),
    "search_documents": (
        ["query", "limit", "category"],
        dict(
            en="Search the internal knowledge base and return the best passages with their source.",
            de="Durchsucht die interne Wissensdatenbank und liefert die besten Textstellen mit Quelle.",
            fr="Cherche dans la base documentaire et renvoie les meilleurs passages avec leur source.",
            es="Busca en la base de conocimiento y devuelve los mejores pasajes con su fuente.",
            zh="在内部知识库中检索，返回最相关的段落及其出处。",
        ),
    ),
    "create_ticket": (
        ["title", "priority", "body", "team"],
        dict(
            en="Open a ticket for a human colleague. Use only when the question cannot be settled here.",
            de="Eröffnet ein Ticket für die Sachbearbeitung. Nur verwenden, wenn die Frage hier nicht zu klären ist.",
            fr="Ouvre une demande pour un collègue. À n'utiliser que si la question ne peut être réglée ici.",
            es="Abre una incidencia para una persona del equipo. Úsela solo si no se puede resolver aquí.",
            zh="为人工同事登记工单，仅在无法直接解决时使用。",
        ),
    ),
    "read_file": (
        ["path", "offset", "limit"],
        dict(
            en="Read a text file from the workspace and return numbered lines.",
            de="Liest eine Textdatei aus dem Arbeitsverzeichnis und liefert nummerierte Zeilen.",
            fr="Lit un fichier texte de l'espace de travail et renvoie des lignes numérotées.",
            es="Lee un archivo de texto del espacio de trabajo y devuelve líneas numeradas.",
            zh="读取工作区中的文本文件，返回带行号的内容。",
        ),
    ),
    "run_command": (
        ["command", "timeout_seconds", "workdir"],
        dict(
            en="Run a shell command in the sandbox and return exit status and output.",
            de="Führt einen Befehl in der Sandbox aus und liefert Rückgabewert und Ausgabe.",
            fr="Exécute une commande dans le bac à sable et renvoie le code de retour et la sortie.",
            es="Ejecuta una orden en el entorno aislado y devuelve el código de salida y el texto.",
            zh="在沙箱中执行命令，返回退出码和输出。",
        ),
    ),
    "send_message": (
        ["recipient", "subject", "text"],
        dict(
            en="Send a short message to a colleague or customer after the user has confirmed the text.",
            de="Sendet nach Bestätigung des Textes eine kurze Nachricht an eine Person.",
            fr="Envoie un court message à une personne après confirmation du texte.",
            es="Envía un mensaje breve a una persona tras confirmar el texto.",
            zh="在用户确认内容之后，向同事或顾客发送简短消息。",
        ),
    ),
    "get_calendar": (
        ["person", "from_date", "to_date"],
        dict(
            en="List appointments of a person between two dates.",
            de="Listet die Termine einer Person zwischen zwei Tagen auf.",
            fr="Liste les rendez-vous d'une personne entre deux dates.",
            es="Muestra las citas de una persona entre dos fechas.",
            zh="列出某人在两个日期之间的日程。",
        ),
    ),
    "calculate_amount": (
        ["base_amount", "surcharge", "currency"],
        dict(
            en="Add up amounts with surcharge and tax and return the total rounded to cents.",
            de="Addiert Beträge mit Zuschlag und Steuer und liefert die gerundete Summe.",
            fr="Additionne des montants avec supplément et taxe et renvoie le total arrondi.",
            es="Suma importes con recargo e impuesto y devuelve el total redondeado.",
            zh="计算含附加费和税的金额，返回精确到分的合计。",
        ),
    ),
    "update_record": (
        ["record_id", "field", "value", "reason"],
        dict(
            en="Change one field of a record. The old value is kept in the audit trail.",
            de="Ändert ein Feld eines Datensatzes. Der alte Wert bleibt im Protokoll erhalten.",
            fr="Modifie un champ d'un enregistrement. L'ancienne valeur reste dans l'historique.",
            es="Cambia un campo de un registro. El valor anterior queda en el historial.",
            zh="修改记录中的一个字段，旧值保留在审计日志中。",
        ),
    ),
    "list_directory": (
        ["path", "recursive"],
        dict(
            en="List files and folders below a path.",
            de="Listet Dateien und Ordner unterhalb eines Pfades auf.",
            fr="Liste les fichiers et dossiers sous un chemin.",
            es="Muestra archivos y carpetas bajo una ruta.",
            zh="列出某一路径下的文件和文件夹。",
        ),
    ),
}
