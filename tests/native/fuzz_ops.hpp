// One function per op; a new one needs a line here and one in fuzz_target.cpp.
#pragma once

namespace fuzz {

class Input;

void fuzz_betweenness(Input& in);
void fuzz_bm25(Input& in);
void fuzz_bridge_expand(Input& in);
void fuzz_bridge_rank(Input& in);
void fuzz_bridge_select(Input& in);
void fuzz_cite(Input& in);
void fuzz_count_words(Input& in);
void fuzz_eigenvector(Input& in);
void fuzz_evidence_graph(Input& in);
void fuzz_fuse(Input& in);
void fuzz_gatv2(Input& in);
void fuzz_graph_rank(Input& in);
void fuzz_hseq_stream(Input& in);
void fuzz_maxsim(Input& in);
void fuzz_narrate(Input& in);
void fuzz_pagerank(Input& in);
void fuzz_prune(Input& in);
void fuzz_select_sentences(Input& in);
void fuzz_weighted_degree(Input& in);

}  // namespace fuzz
