"""Texts without a mark of their encoding, as Windows wrote them in western and central Europe: short, long, with
the quotes of German, which both encodings have."""

from pathlib import Path

import pytest

from pyfast.corpus.formats.files import read_text

PROSE = {
    "cp1252": [
        "Die Küche des Gasthofs in Lübeck ist berühmt. Nach São Paulo, Genève und Bodø fliegt niemand mehr.",
        "São Paulo; Bodø; Genève",
        "À Genève, la rivière traverse la forêt où le père a vécu. L’œuvre du maître n’est pas achevée.",
        "El Niño llegó mañana a la montaña, ¿no? El señor Muñoz vive en el 3º piso, año tras año.",
        "As regiões têm milhões de habitantes e a função da mãe é importante. Você não põe o pão na mesa.",
        "La città è più bella perché il caffè è lì. La libertà non è un lusso, così dice il papà.",
        "På søen ligger en lille båd, og børnene leger på øen. København har mange smørrebrødssteder.",
        "Ved fjorden bor det få folk. Ålesund og Tromsø er større, og båten går på lørdag.",
        "Det är mörkt på kvällen, och många går hem över ån. Åsa bor i Malmö.",
        "Järven rannalla on pieni mökki. Äiti lähti töihin, ja isä jäi yöksi Jyväskylään.",
        "Bærinn stendur við fjörðinn og þar búa um þrjú þúsund manns. Áður var þar síldarvinnsla.",
        "El poble és petit però té una església. L’avi diu que demà plourà, i això és veritat.",
        "Õpetaja võttis põllult õunu ja sõitis kõrge mõisa juurde. Ta nägi kõike, mis jäi sinna.",
    ],
    "cp1250": [
        "Rzeka płynie przez Łódź i Wrocław. Dzień był piękny, a śnieg leżał aż do końca świąt.",
        "Łódź; Gdańsk; Święto",
        "Město leží na řece a jeho obyvatelé každý den chodí pěšky do práce. Večer teče řeka tiše.",
        "Řeka teče; včera; Plzeň",
        "Petőfi Sándor költő és forradalmár volt, Kiskőrösön született. A hűvös eső után kisütött a nap.",
        "Rieka tečie cez mesto a ľudia chodia každý deň pešo do práce. Večer býva ticho.",
        "Reka teče skozi mesto, ljudje pa vsak dan hodijo peš v službo. Včeraj je deževalo.",
        "Rijeka teče kroz grad, a ljudi svaki dan idu pješice na posao. Đorđe Petrović kaže da će kišiti.",
        "Râul curge prin oraş, iar oamenii merg în fiecare zi la muncă. Bucureşti şi Iaşi sunt oraşe mari.",
    ],
    "cp1254": ["Isparta'da yaşayan çiftçiler bu yıl gül hasadına erken başladı. Işık Çağlar köye döndü."],
}


@pytest.mark.parametrize("times", [1, 30])
@pytest.mark.parametrize("quotes", ["", "„“", "„”"])
@pytest.mark.parametrize(("encoding", "text"), [(name, text) for name, texts in PROSE.items() for text in texts])
def test_prose_of_windows(encoding: str, text: str, quotes: str, times: int, tmp_path: Path) -> None:
    said = f"{quotes[:1]}{text}{quotes[1:]}\n" * times
    (tmp_path / "a.txt").write_bytes(said.encode(encoding))
    assert read_text(tmp_path / "a.txt") == said


def test_a_long_text_has_a_few_foreign_names(tmp_path: Path) -> None:
    said = PROSE["cp1252"][0] * 40 + "„Škoda“ in Reykjavík: Þingvellir, señor!" + PROSE["cp1252"][2] * 40
    (tmp_path / "a.txt").write_bytes(said.encode("cp1252"))
    assert read_text(tmp_path / "a.txt") == said
