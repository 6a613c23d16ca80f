"""Data tables: the sentences of the base's answers. `{t}` is the topic, `{k}` a word that the prompt asks for."""

from recovery.lab.text_tables import wordings, words

GENRES = {
    "note": "This note is about {t}.",
    "story": "This is a story about {t}.",
    "review": "Here is an honest review of {t}.",
    "letter": "I am writing to you about {t}.",
    "speech": "Friends, let us talk about {t}.",
    "report": "This report looks at {t}.",
    "blog post": "Today the blog is about {t}.",
    "poem": "Let me sing of {t}.",
    "plan": "Here is a plan for {t}.",
    "guide": "This guide explains {t}.",
    "summary": "In short, this is about {t}.",
    "paragraph": "Let us look at {t}.",
}
REQUESTS = wordings("""
    Write a {g} about {t}. / Please write a {g} about {t}. / Can you write a {g} about {t}? / I need a {g} about {t}.
    / Compose a {g} on {t}. / Give me a {g} about {t}. / Help me with a {g} on {t}. / Draft a {g} about {t} for me.
""")
GENERAL = wordings("""
    Many people like {t}. / It has a long history. / Some visitors come from far away to see it. / Nobody knows who
    made it. / You can learn a lot from it. / It looks best in the morning. / Children often ask questions about it. /
    There is always more to say about {t}. / The old stories mention it, and so do the new ones. / It takes time to
    understand it. / A quiet walk helps you to think about {t}. / My neighbour told me about it last year. / The first
    thing to notice is the shape. / It is simple, useful and strong. / In the evening, the light makes it look
    different. / Good work needs care, and it shows here. / We should take better care of {t}. / Everybody remembers
    the first time. / It costs little but gives a lot. / If you have time, go and see it. / There are many ways to
    describe it. / Some say it brings good luck. / Friends like to talk about {t}. / The best season for it is the
    spring. / It was smaller in the past, of course. / Nothing else in the region is quite like it. / An artist once
    painted {t}. / It keeps its secrets well. / People still argue about the name. / The details matter more than the
    size. / Most guests stay longer than planned. / It makes a cold day feel warm. / You only need patience, time and
    a little help. / Even a short visit is worth the trip. / The local paper wrote about {t} twice. / It may look
    plain at first. / Later, you see how much thought went into it. / That is why so many people return. / Someone
    should write a book about {t}. / It works in rain and in sunshine. / The sound of it is hard to forget. / We met
    there every week, rain or shine. / It teaches us to slow down. / Every town would be glad to have it. / The idea
    behind {t} is simple. / It has changed, but not too much. / Old and young people share it. / You will find it near
    the centre. / It is kept safe by those who love it. / The story of {t} goes on. / For me, it means home. / It
    belongs to everyone. / Take your time and enjoy it. / Not much is needed to begin. / The result is better than
    expected. / It gives people a reason to smile. / Both experts and beginners praise {t}. / Some parts were repaired
    by hand. / It stands for hope, trust and honest work. / Next year there will be a festival for it.
""")
WITH_WORD = wordings("""
    It goes well with the word {k}. / Think of {k} as well. / Somebody mentioned {k} in this context. / There is also
    {k} to consider. / It reminds some people of {k}. / We must not forget {k} here. / The link to {k} is easy to see.
    / A few words on {k} belong here too.
""")
FIRST_WORD = wordings("""
    {k} is the right word to begin with. / {k} comes first in this part. / {k} opens this part.
""")
PLACEHOLDERS = tuple(
    sentence.replace("#", f"[{slot}]")
    for sentence, slots in {
        "Send your questions to #.": ("email", "address", "contact person"),
        "We meet at #.": ("place", "time", "location"),
        "The person in charge is #.": ("name", "full name", "manager"),
        "It will take place on #.": ("date", "day", "weekday"),
        "Please call # first.": ("phone number", "office"),
        "The price is #.": ("price", "amount"),
        "It was made in #.": ("year", "city", "country"),
        "Signed by #.": ("your name", "signature", "sender"),
        "Do not forget to bring #.": ("item", "document", "ticket"),
    }.items()
    for slot in slots
)
POSTSCRIPTS = wordings("""
    Thank you for reading. / Write to me soon. / Bring a friend next time. / There is more to come. / Keep this to
    yourself.
""")
CAPITALS = words("GREAT BRIGHT CALM USEFUL STRONG SIMPLE WARM FAMOUS OLD NEW SAFE CLEAN QUIET HAPPY RARE FINE")
SHOUTS = wordings("""
    It is {a} and {b}. / How {a} and how {b}! / Call it {a} or call it {b}. / Some say {a} while others say {b}.
""")
LETTERS = {
    line.split()[0]: line.split(maxsplit=1)[1]
    for line in wordings("""
        a A cat sat calmly at that salt lake. /
        b Bobby bought big blue bubbles by the bay. /
        c Crisp cocoa can calm a cross clerk. /
        d David added dry wood and decided daily deeds. /
        e These seven green trees keep the bees free. /
        f Five fluffy fish found fresh food for free. /
        g Gentle geese are going through a green gorge. /
        h He hopes the harsh hill holds his heavy house. /
        i His big kitchen is filled with shining tin. /
        j Jolly Judy enjoys juggling just in June. /
        k Kind Kiki kept kicking thick black sticks. /
        l Little Lilly will sell all yellow lilies. /
        m My mum makes many more marvellous muffins. /
        n Nine new nuns never noticed any noon noise. /
        o Good old books look cool on most of our rooms. /
        p Peppy puppies pop up on a purple ship. /
        q Quick queens quietly quit a quaint quiz. /
        r Red roses rarely grow right over our river. /
        s Six silly swans slip across seas of grass. /
        t That tall tutor taught ten tiny tots to trot. /
        u Our hungry uncle cut out unusual used cups. /
        v Every vivid violet gave five vases value. /
        w We will wait while the wet wind blows west. /
        x Six foxes fix extra boxes next to Max. /
        y Yesterday my shy boy yelled very shyly. /
        z Dizzy bees buzz in a lazy puzzling jazz haze.
""")
}
YES_NO = wordings("""
    Is {t} worth a visit? / Should we keep {t}? / Would you recommend {t}? / Do many people know {t}? / Is it easy to
    find {t}? / Will {t} be there next year?
""")
LANGUAGES = {
    "de": wordings("""
        German / Das ist ein schönes Thema für uns alle. / Viele Menschen sprechen gern darüber. / Am Morgen ist es
        dort besonders ruhig. / Man braucht etwas Zeit, um es zu verstehen. / Die Geschichte ist lang und nicht immer
        einfach. / Ich komme nächstes Jahr gern wieder. / Meine Freunde haben mir davon erzählt. / Es gibt noch vieles
        zu entdecken.
    """),
    "fr": wordings("""
        French / C'est un très beau sujet pour nous tous. / Beaucoup de gens aiment en parler. / Le matin tout est
        calme dans cette ville. / Il faut du temps pour bien le comprendre. / Cette histoire est longue et pas
        toujours simple. / Je reviendrai avec plaisir cette année. / Mes amis m'en ont souvent parlé. / Il reste
        encore beaucoup de choses à voir.
    """),
    "es": wordings("""
        Spanish / Es un tema muy bonito para todos nosotros. / Mucha gente habla de esto con gusto. / Por la mañana
        todo está tranquilo en el pueblo. / Hace falta tiempo para entenderlo bien. / La historia es larga y no
        siempre fácil. / El próximo año volveré con mis amigos. / Mis vecinos me hablaron de ello muchas veces. /
        Todavía quedan muchas cosas por descubrir.
    """),
    "it": wordings("""
        Italian / Questo è un argomento molto bello per tutti noi. / Molte persone ne parlano volentieri. / La mattina
        tutto è tranquillo nella piazza. / Ci vuole del tempo per capirlo bene. / La storia è lunga e non sempre
        facile. / L'anno prossimo tornerò con gli amici. / I miei vicini me ne hanno parlato spesso. / Ci sono ancora
        molte cose da scoprire.
    """),
    "pt": wordings("""
        Portuguese / Este é um assunto muito bonito para todos nós. / Muitas pessoas gostam de falar sobre isso. / De
        manhã tudo está calmo na praça. / É preciso tempo para entender bem. / A história é longa e nem sempre é
        fácil. / No próximo ano voltarei com os meus amigos. / Os meus vizinhos já me falaram muito disso. / Ainda há
        muitas coisas para descobrir.
    """),
}
