def is_onednn(page): return False
def read_onednn(page, ledger): raise NotImplementedError
