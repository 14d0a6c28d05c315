#!/usr/bin/env python3
"""Writes bleu.json: small corpora and what sacreBLEU (pip install sacrebleu, 2.6.0) says of them, for tests/train/bleu_test.cpp.

Not part of the build; run it by hand when corpora are added."""
import json
import os
import random

import sacrebleu
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

LINES = [
    'Ein Mann in einem blauen Hemd steht auf einer Leiter und putzt ein Fenster.',
    'Two dogs, one brown and one white, run through the snow.',
    'He paid $1,234.56 (plus 7% tax) in 2019-2020; "never again", he said.',
    "The children's toys aren't here: 3-4 were lost - others, well... sold.",
    'Žena v červeném kabátu čeká na zastávce, zatímco prší.',
    'Un garçon saute par-dessus une clôture ; il a 10 ans.',
    'A &quot;quoted&quot; &amp; escaped &lt;tag&gt; stays.',
    'www.example.com/path?x=1&y=2 costs 5.00,- each, i.e. 12-inch ones!',
    'non\u00a0breaking\u2003and\u3000wide spaces, \u201ccurly quotes\u201d \u2013 dashes',
    'the the the the the the the',
    'Short one.',
    '.,.,5.,5-',
]


def varied(line, rng):
    """A line like it: words left out, doubled and changed in order."""
    words = line.split(' ')
    out = []
    for word in words:
        draw = rng.random()
        if draw < 0.12:
            continue
        out.append(word)
        if draw > 0.93:
            out.append(word)
    if len(out) > 3 and rng.random() < 0.5:
        i = rng.randrange(len(out) - 1)
        out[i], out[i + 1] = out[i + 1], out[i]
    return ' '.join(out)


def corpora():
    rng = random.Random(7)
    yield 'equal', LINES, LINES
    for i in range(6):
        yield f'varied {i}', [varied(line, rng) for line in LINES], LINES
    yield 'shorter', [' '.join(line.split(' ')[:5]) for line in LINES], LINES
    yield 'longer', [line + ' and then some more words' for line in LINES], LINES
    yield 'no match', ['alpha beta gamma delta epsilon'], ['one two three four five']
    yield 'only words match', ['five four three two one'], ['one two three four five']
    yield 'two orders without a match', ['a b x c d y e f'], ['a b q c d r e f']
    yield 'no 4-gram', ['a b c'], ['a b c']
    yield 'case', ['the Cat sat on the mat'], ['The cat sat on the mat']
    yield 'empty hypothesis', ['', 'a b c d e'], ['f g', 'a b c d e']
    yield 'all empty', ['', ''], ['a', 'b']
    yield 'clipped', ['the the the the the the the'], ['the cat is on the mat']


def main():
    metric = sacrebleu.BLEU()
    rows = []
    for name, hypotheses, references in corpora():
        score = metric.corpus_score(hypotheses, [references])
        rows.append({'name': name, 'hypotheses': hypotheses, 'references': references, 'score': score.score,
                     'matches': score.counts, 'totals': score.totals, 'precisions': score.precisions,
                     'brevity_penalty': score.bp, 'hypothesis_length': score.sys_len, 'reference_length': score.ref_len,
                     'text': score.format(width=2)})
    tokens = [[line, Tokenizer13a()(line.rstrip())] for line in LINES + ['  blanks \t around  ', '1.5.', 'a-b 1-b -1 1--2', ',']]
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'bleu.json')
    with open(path, 'w', encoding='utf-8') as file:
        json.dump({'sacrebleu': sacrebleu.__version__, 'signature': str(metric.get_signature()), 'tokens': tokens,
                   'corpora': rows}, file, ensure_ascii=False, indent=1)
        file.write('\n')


if __name__ == '__main__':
    main()
