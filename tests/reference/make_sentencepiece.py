#!/usr/bin/env python3
"""Token ids by SentencePiece's own programs (Debian package sentencepiece): writes sentencepiece.json beside this file.

spm_train trains on data/rhyme.txt with the settings that `gpipe-train tokenize` gives; spm_encode says the ids of some
lines. The tests train the same models through the library and compare."""
import json
import pathlib
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TEXT = HERE.parent.parent / 'data' / 'rhyme.txt'
LINES = [
    'The miller rose before the sun',
    '<de> the wheel ground barley into meal.',
    'Cafés & <fr> mills: 12 of them',
    '',
    '  two  spaces\tand a tab ',
    'ünknöwn letters \u732b',
]


def ids(kind, vocabulary, folder):
    model = str(pathlib.Path(folder) / kind)
    subprocess.run(['spm_train', f'--input={TEXT}', f'--model_prefix={model}', f'--model_type={kind}',
                    f'--vocab_size={vocabulary}', '--character_coverage=0.9995', '--num_threads=1', '--pad_id=0',
                    '--unk_id=1', '--bos_id=2', '--eos_id=3', '--user_defined_symbols=<de>,<fr>', '--minloglevel=2'],
                   check=True)
    out = subprocess.run(['spm_encode', f'--model={model}.model', '--output_format=id'], input='\n'.join(LINES) + '\n',
                         text=True, capture_output=True, check=True).stdout.split('\n')
    back = subprocess.run(['spm_decode', f'--model={model}.model', '--input_format=id'], input='\n'.join(out),
                          text=True, capture_output=True, check=True).stdout.split('\n')
    return {'kind': kind, 'vocabulary': vocabulary,
            'lines': [{'text': text, 'ids': [int(i) for i in row.split()], 'decoded': again}
                      for text, row, again in zip(LINES, out, back)]}


with tempfile.TemporaryDirectory() as temporary:
    cases = [ids('unigram', 200, temporary), ids('bpe', 250, temporary)]
(HERE / 'sentencepiece.json').write_text(json.dumps(cases, indent=1, ensure_ascii=False) + '\n', encoding='utf-8')
