"""The engine: profile, run, record and verify on torch.distributed.pipelining."""
