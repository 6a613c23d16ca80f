"""Data table: the phrasings of each kind of instruction. The braces hold IFEval's own arguments."""

from recovery.lab.text_tables import wordings

PHRASINGS = {
    "detectable_format:number_bullet_lists": wordings("""
        Your answer must contain exactly {num_bullets} bullet points. Use the markdown bullet points such as:
        * This is point 1. * This is point 2. / Use exactly {num_bullets} bullet points in markdown format. /
        Make it a list of {num_bullets} bullet points, each starting with *. / Answer with exactly {num_bullets}
        markdown bullets.
    """),
    "length_constraints:number_paragraphs": wordings("""
        There should be {num_paragraphs} paragraphs. Paragraphs are separated with the markdown divider: *** /
        Write exactly {num_paragraphs} paragraphs separated by ***. /
        Give me {num_paragraphs} paragraphs and put the markdown divider *** between them. /
        Your answer needs {num_paragraphs} paragraphs divided by ***.
    """),
    "length_constraints:nth_paragraph_first_word": wordings("""
        There should be {num_paragraphs} paragraphs. Paragraphs and only paragraphs are separated with each other by two
        new lines. Paragraph {nth_paragraph} must start with word {first_word}. /
        Write {num_paragraphs} paragraphs separated by a blank line. Paragraph {nth_paragraph} must start with the word
        {first_word}. /
        Use exactly {num_paragraphs} paragraphs with two line breaks in between and begin paragraph {nth_paragraph}
        with {first_word}.
    """),
    "detectable_format:multiple_sections": wordings("""
        Your response must have {num_sections} sections. Mark the beginning of each section with {section_spliter} X,
        such as: {section_spliter} 1 [content of section 1] {section_spliter} 2 [content of section 2] /
        It must have {num_sections} sections. Mark each one with {section_spliter} X. /
        Split it into {num_sections} sections named {section_spliter} 1, {section_spliter} 2 and so on. /
        Have {num_sections} sections. Start each of them with {section_spliter} X.
    """),
    "combination:two_responses": wordings("""
        Give two different responses. Responses and only responses should be separated by 6 asterisk symbols: ******. /
        Write two different answers separated by ******. / I want two versions. Put ****** between them and nowhere
        else.
    """),
    "detectable_format:json_format": wordings("""
        Entire output should be wrapped in JSON format. You can use markdown ticks such as ```. / Answer in JSON
        format. / Your whole reply must be valid JSON. / Please output JSON only.
    """),
    "detectable_format:constrained_response": wordings("""
        Answer with one of the following options: ('My answer is yes.', 'My answer is no.', 'My answer is maybe.') /
        Choose one of these: 'My answer is yes.', 'My answer is no.', 'My answer is maybe.' /
        Reply with exactly one of the following: My answer is yes. My answer is no. My answer is maybe.
    """),
    "language:response_language": wordings("""
        Your ENTIRE response should be in {language} language, no other language is allowed. / Answer in {language}
        only. / The whole reply has to be in {language}. / Please write it in {language}.
    """),
    "keywords:existence": wordings("""
        Include keywords {keywords} in the response. / Use the words {keywords}. / The answer must mention {keywords}. /
        Make sure that {keywords} can be found in it. / Work in the following: {keywords}
    """),
    "keywords:frequency": wordings("""
        In your response, the word {keyword} should appear {relation} {frequency} times. /
        Use the word {keyword} {relation} {frequency} times. / The word {keyword} has to occur {relation} {frequency}
        times.
    """),
    "detectable_content:number_placeholders": wordings("""
        The response must contain at least {num_placeholders} placeholders represented by square brackets, such as
        [address]. / Leave at least {num_placeholders} placeholders in square brackets like [name]. /
        Use {num_placeholders} or more placeholders such as [date] in square brackets.
    """),
    "change_case:capital_word_frequency": wordings("""
        In your response, words with all capital letters should appear {capital_relation} {capital_frequency} times. /
        Use words in all capital letters {capital_relation} {capital_frequency} times. /
        Write words in full capitals {capital_relation} {capital_frequency} times.
    """),
    "detectable_content:postscript": wordings("""
        At the end of your response, please explicitly add a postscript starting with {postscript_marker} /
        Add a postscript that starts with {postscript_marker} / Close with a postscript marked {postscript_marker}
    """),
    "detectable_format:title": wordings("""
        Your answer must contain a title wrapped in double angular brackets such as <<poem of joy>>. /
        Give it a title wrapped in double angular brackets like <<title>>. /
        Put a title in double angular brackets on top such as <<my day>>.
    """),
    "startend:end_checker": wordings("""
        Finish your response with this exact phrase {end_phrase} No other words should follow this phrase. /
        The very last words must be: {end_phrase} / Your response should end with the phrase "{end_phrase}" /
        End with this sentence: {end_phrase}
    """),
    "detectable_format:number_highlighted_sections": wordings("""
        Highlight at least {num_highlights} sections in your answer with markdown, i.e. *highlighted section*. /
        Highlight {num_highlights} or more phrases like *this*. /
        Put at least {num_highlights} parts between asterisks as in *highlighted text*.
    """),
    "keywords:letter_frequency": wordings("""
        In your response, the letter {letter} should appear {let_relation} {let_frequency} times. /
        Use the letter {letter} {let_relation} {let_frequency} times. /
        Let the letter {letter} occur {let_relation} {let_frequency} times.
    """),
    "keywords:forbidden_words": wordings("""
        Do not include keywords {forbidden_words} in the response. / Do not use the words {forbidden_words}. /
        Avoid the words {forbidden_words}. / The answer must not contain {forbidden_words}.
    """),
    "length_constraints:number_sentences": wordings("""
        Your response should contain {relation} {num_sentences} sentences. / Write {relation} {num_sentences}
        sentences. / Answer in {relation} {num_sentences} sentences.
    """),
    "length_constraints:number_words": wordings("""
        Answer with {relation} {num_words} words. / Write {relation} {num_words} words. / Use {relation} {num_words}
        words. / Your response should contain {relation} {num_words} words.
    """),
    "change_case:english_capital": wordings("""
        Your entire response should be in English, and in all capital letters. / Write everything in capital letters. /
        Use only capital letters and English in your whole reply.
    """),
    "change_case:english_lowercase": wordings("""
        Your entire response should be in English, and in all lowercase letters. No capital letters are allowed. /
        Write everything in lowercase letters. / Do not use any capital letters.
    """),
    "punctuation:no_comma": wordings("""
        Refrain from the use of any commas in your entire response. / Do not use any commas. /
        Your answer must not contain a comma. / Avoid commas altogether.
    """),
    "startend:quotation": wordings("""
        Wrap your entire response with double quotation marks. / Put the whole answer in double quotation marks. /
        Your reply must start and end with a double quotation mark.
    """),
    "combination:repeat_prompt": wordings("""
        First repeat the request word for word without change, then give your answer (1. do not say any words or
        characters before repeating the request; 2. the request you need to repeat does not include this sentence) /
        First repeat the request above word for word and then answer it. /
        Before you answer, repeat the request above without change.
    """),
}
