"""Hugging Face: `hpuprof.HFCallback("traces/")` as a callback of the Trainer."""

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import hpuprof


def main() -> None:
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = BertForSequenceClassification(BertConfig(vocab_size=100, **shape))
    data = [{"input_ids": torch.randint(0, 100, (16,)), "labels": torch.tensor(n % 2)} for n in range(256)]
    arguments = TrainingArguments(
        "out", per_device_train_batch_size=4, gradient_accumulation_steps=2, num_train_epochs=2,
        use_cpu=True, report_to=[], save_strategy="no",
    )  # fmt: skip
    Trainer(model, arguments, train_dataset=data, callbacks=[hpuprof.HFCallback("traces/")]).train()


if __name__ == "__main__":
    main()
