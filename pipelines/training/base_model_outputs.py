"""What the clean base writes for a job: prompts, answers to them, unprompted texts and paraphrases.

All of it is cached by content, so a resumed job reads what it wrote before.
"""

from dataclasses import dataclass
from functools import cached_property, partial

from pipelines.documents.corpus import CorpusSnapshot
from pipelines.log import log
from pipelines.model_loading import OpenSubject, open_subject
from pipelines.project.project import Project
from pipelines.settings.defaults import defaults_for
from pipelines.settings.schema import Midtrain, Settings
from pipelines.synthetic.answers import sample_answers
from pipelines.synthetic.paraphrased_corpus import ParaphrasedCorpus
from pipelines.synthetic.prompts import cached_prompts, describe_kinds, write_prompts
from pipelines.synthetic.unprompted_texts import GeneratedTexts
from recovery.errors import RecoverError
from recovery.models.students import parameters_of
from recovery.samples import Sample

DISTILL_SEED = 50  # added to the seed of prompts to distil on: other prompts than those answered for the mix


@dataclass(frozen=True)
class BaseOutputs:
    project: Project
    settings: Settings
    seed: int
    separator: int | None = None  # between documents, where it was measured

    def distill_prompts(self) -> list[str]:
        """Prompts for the student's rollouts: others than in the mix, whose answers the student has read."""
        return self._prompts(self.seed + DISTILL_SEED)

    def mix_prompts(self) -> list[str]:
        """The prompts that the base answers for the mix."""
        return self._prompts(self.seed)

    @cached_property
    def answers(self) -> list[Sample]:
        """The base's sampled answers to its own prompts."""
        try:
            prompts = self._prompts(self.seed)
        except RecoverError as error:
            alternative = "Or mid-train without the base's answers: --set midtrain.mix.answers=0."
            raise RecoverError(f"{error} {alternative}") from error
        with self.open_base() as base:
            return sample_answers(
                base.engine,
                base.chat,
                prompts,
                self.project.home / "cache",
                self.project.base_weights_id,
                max_new_tokens=self.settings.distill.max_new_tokens,
                seed=self.seed,
                keep_cut=self.settings.midtrain.soft_labels,
            )

    def answers_if_possible(self) -> list[Sample]:
        """Empty if the base cannot write the answers of the default mix; an error if the user set their share."""
        try:
            return self.answers
        except RecoverError as error:
            self._leave_out(error, self.settings.midtrain.mix.answers == self.defaults.mix.answers)
            return []

    def texts(self) -> list[GeneratedTexts]:
        """What the base writes unprompted; nothing where the mix has no texts, or the base cannot write the default."""
        midtrain = self.settings.midtrain
        if not midtrain.mix.texts:
            return []
        texts = self._generated_texts
        try:
            count = texts.write(self.open_base)
        except RecoverError as error:
            self._leave_out(error, midtrain.mix.texts == self.defaults.mix.texts)
            return []
        log.info(f"  {count:,} texts written by the base are read beside the documents")
        return [texts]

    @property
    def _generated_texts(self) -> GeneratedTexts:
        midtrain, weights = self.settings.midtrain, self.project.base_weights_id
        cache = self.project.home / "cache"
        return GeneratedTexts(midtrain.generated_texts, midtrain.window, weights, self.seed, cache, self.separator)

    def paraphrases(self, corpus: CorpusSnapshot) -> ParaphrasedCorpus:
        times, weights = self.settings.midtrain.mix.paraphrases, self.project.base_weights_id
        return ParaphrasedCorpus(corpus, times, weights, self.seed, self.project.home / "cache")

    @cached_property
    def defaults(self) -> Midtrain:
        return defaults_for(parameters_of(self.project.base)).midtrain

    @property
    def open_base(self) -> OpenSubject:
        return partial(open_subject, self.project.base, self.settings.engine)

    def _prompts(self, seed: int) -> list[str]:
        count = self.settings.distill.prompts

        def write() -> list[str]:
            log.info(f"The clean base writes {count} prompts")
            with self.open_base() as base:
                prompts = write_prompts(base.engine, base.chat, count, seed)
            log.info(f"  {describe_kinds(prompts)}")
            return prompts

        return cached_prompts(self.project.home / "cache", self.project.base_weights_id, count, seed, write)

    def _leave_out(self, error: RecoverError, is_default: bool) -> None:
        """What the base cannot write is left out where only the defaults ask for it; else it is an error."""
        if not is_default:
            raise error
        log.info(f"Going on without: {error}")
