// GRMM as c14_chains.py asks for it: two chains over each sentence, whose scores are given.
//     GrmmPairs SCORES ANSWER "tree"|"TRP"[", logs"] sentences    writes JSON, after so many to warm up
// SCORES: float64: labels of each chain, sentences, their lengths, tables of pairs, scores of each token.
import static cc.mallet.grmm.util.Models.bestAssignment;
import cc.mallet.grmm.inference.*;
import cc.mallet.grmm.types.*;
import java.lang.management.ManagementFactory;
import java.nio.*;
import java.nio.file.*;
import java.util.*;
import java.util.stream.DoubleStream;

public class GrmmPairs {
    static boolean logs; // tables in logarithms, as in GRMM's own CRFs

    static double cpu() {
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        return system.getProcessCpuTime() / 1e9;
    }

    static double[] table(DoubleBuffer from, double n) {
        return DoubleStream.generate(from::get).limit((long) n).map(x -> logs ? x : Math.exp(x)).toArray();
    }

    static void add(FactorGraph g, double[] x, Variable... v) {
        g.addFactor(logs ? LogTableFactor.makeFromLogValues(v, x) : new TableFactor(v, x));
    }

    public static void main(String[] given) throws Exception {
        java.util.logging.LogManager.getLogManager().reset();
        logs = given[2].endsWith("logs");
        var in = ByteBuffer.wrap(Files.readAllBytes(Path.of(given[0]))).asDoubleBuffer();
        double a = in.get(), b = in.get();
        var nodes = new double[(int) in.get()][][];
        for (int s = 0; s < nodes.length; s++) nodes[s] = new double[2 * (int) in.get()][];
        double[][] pairs = {table(in, a * a), table(in, b * b), table(in, a * b)};
        for (var x : nodes) for (int i = 0; i < x.length; i++) x[i] = table(in, i % 2 == 0 ? a : b);
        var v = new Variable[Arrays.stream(nodes).mapToInt(x -> x.length).max().getAsInt()]; // of all graphs
        for (int i = 0; i < v.length; i++) v[i] = new Variable((int) (i % 2 == 0 ? a : b));
        var trp = given[2].startsWith("TRP") ? new TRP() : null;
        if (trp != null) trp.setRandomSeed(0);
        var sum = trp != null ? trp : new JunctionTreeInferencer();
        var max = JunctionTreeInferencer.createForMaxProduct();
        double[] spent = new double[3], found[] = new double[4][nodes.length];
        var g = new FactorGraph();
        for (int n = -Integer.parseInt(given[3]); n < nodes.length; n++) {
            if (n == 0) Arrays.fill(spent, 0);
            int s = Math.floorMod(n, nodes.length);
            for (int what = 0; what < (trp == null ? 3 : 2); what++) { // log Z, the same again, best score
                spent[what] -= cpu();
                if (what != 1) g = new FactorGraph(); // it keeps its junction tree
                for (int i = 0; what != 1 && i < nodes[s].length; i++) {
                    add(g, nodes[s][i], v[i]);
                    if (i > 1) add(g, pairs[i % 2], v[i - 2], v[i]);
                    if (i % 2 == 1) add(g, pairs[2], v[i - 1], v[i]);
                }
                if (what < 2) sum.computeMarginals(g); // log Z reads those of all labels
                var low = what < 2 ? Utils.lookupMinusLogZ(g, sum) : -g.logValue(bestAssignment(g, max));
                found[what][s] = -low;
                if (trp != null) found[3][s] = trp.iterationsUsed();
                spent[what] += cpu();
            }
        }
        Files.writeString(Path.of(given[1]), Arrays.deepToString(new Object[] {found, spent}));
    }
}
